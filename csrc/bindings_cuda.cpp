// The CUDA kernels of the ops.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include "bindings.h"
#include "cuda/config.h"
#include "cuda/kernels.h"

namespace packedtri {
namespace {

// The caller's guard has made the tensors' device current.
cudaStream_t current_stream() {
    void* stream = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(
        torch::stable::accelerator::getCurrentDeviceIndex(), &stream));
    return static_cast<cudaStream_t>(stream);
}

Tensor pack_cuda(Tensor dense, int64_t kind) {
    const torch::stable::accelerator::DeviceGuard guard(dense.get_device_index());
    return pack(dense, kind, [](const Conversion& c) { cuda::pack(c, current_stream()); });
}

Tensor unpack_cuda(Tensor packed, int64_t n, int64_t kind) {
    const torch::stable::accelerator::DeviceGuard guard(packed.get_device_index());
    return unpack(packed, n, kind, [](const Conversion& c) { cuda::unpack(c, current_stream()); });
}

// An operand of a kind that the product kernels do not load becomes dense first.
Tensor loadable(const Tensor& x, int64_t n, int64_t& kind) {
    if (cuda::loads(static_cast<Kind>(kind))) return x;
    Tensor dense = unpack_cuda(x, n, kind);
    kind = static_cast<int64_t>(Kind::Dense);
    return dense;
}

Tensor mm_cuda(Tensor a, Tensor b, int64_t n, int64_t a_kind, int64_t b_kind, int64_t c_kind) {
    // Operands on different devices are told apart by the checks that follow.
    const torch::stable::accelerator::DeviceGuard guard((a.is_cuda() ? a : b).get_device_index());
    a = loadable(a, n, a_kind);
    b = loadable(b, n, b_kind);
    return mm(a, b, n, a_kind, b_kind, c_kind,
              [](const Product& p) { cuda::mm(p, current_stream()); });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY_IMPL(packedtri, CUDA, m) {
    m.impl("mm", TORCH_BOX(&packedtri::mm_cuda));
    m.impl("pack", TORCH_BOX(&packedtri::pack_cuda));
    m.impl("unpack", TORCH_BOX(&packedtri::unpack_cuda));
}

// For `packedtri info`, reached through ctypes: the kernel of an n x n by n x m product in words. The
// text lives until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* packedtri_cuda_explain(
    int dtype, int64_t n, int64_t m, int64_t batch, int a_kind, int b_kind, int c_kind,
    int multiprocessors, int major) {
    using namespace packedtri;
    static thread_local std::string text;
    Product p{};
    p.dtype = static_cast<DType>(dtype);
    p.m = p.k = n;
    p.n = m;
    p.batch = batch;
    p.a.kind = static_cast<Kind>(a_kind);
    p.b.kind = static_cast<Kind>(b_kind);
    p.c.kind = static_cast<Kind>(c_kind);
    text = cuda::explain(p, {multiprocessors, major == 9});
    return text.c_str();
}

// For tests and tuning, reached through ctypes: see force in cuda/config.h.
extern "C" __attribute__((visibility("default"))) void packedtri_cuda_force(int tile, int split,
                                                                            int split_above,
                                                                            int group) {
    packedtri::cuda::force(tile, split, split_above, group);
}
