// The CUDA kernels of solves and factorizations.
#include "bindings_solve.h"
#include "cuda/kernels.h"
#include "torch_cuda.h"

namespace packedtri {
namespace {

Tensor solve_triangular_cuda(Tensor packed, Tensor b, int64_t n, int64_t kind, int64_t b_kind,
                             bool left, bool unit) {
    // Operands on different devices are told apart by the checks that follow.
    const torch::stable::accelerator::DeviceGuard guard(
        (packed.is_cuda() ? packed : b).get_device_index());
    TorchScratch scratch(packed);
    return solve_triangular(packed, b, n, kind, b_kind, left, unit,
                            [&](const Solve& p) { cuda::solve(p, &scratch, current_stream()); });
}

std::tuple<Tensor, Tensor> cholesky_cuda(Tensor packed, int64_t n) {
    const torch::stable::accelerator::DeviceGuard guard(packed.get_device_index());
    TorchScratch scratch(packed);
    return cholesky(packed, n,
                    [&](const Factor& p) { cuda::factor(p, &scratch, current_stream()); });
}

std::tuple<Tensor, Tensor> cholesky_update_cuda(Tensor packed, Tensor x, int64_t n, bool downdate) {
    const torch::stable::accelerator::DeviceGuard guard(
        (packed.is_cuda() ? packed : x).get_device_index());
    TorchScratch scratch(packed);
    return cholesky_update(packed, x, n, downdate, [&](const FactorUpdate& p) {
        cuda::update_factor(p, &scratch, current_stream());
    });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY_IMPL(packedtri, CUDA, m) {
    m.impl("solve_triangular", TORCH_BOX(&packedtri::solve_triangular_cuda));
    m.impl("cholesky", TORCH_BOX(&packedtri::cholesky_cuda));
    m.impl("cholesky_update", TORCH_BOX(&packedtri::cholesky_update_cuda));
}
