// The CUDA kernels of solves and factorizations.
#include <array>

#include "arguments.h"
#include "bindings_solve.h"
#include "boxed.h"
#include "cuda/config.h"
#include "cuda/kernels.h"
#include "torch_cuda.h"

namespace packedtri {
namespace {

void solve_into(const Tensor& out, const Tensor& t, const Tensor& b, bool upper, bool left,
                bool unit) {
    std::array<StableIValue, 6> stack{
        torch::stable::detail::from(t),     torch::stable::detail::from(b),
        torch::stable::detail::from(upper), torch::stable::detail::from(left),
        torch::stable::detail::from(unit),  torch::stable::detail::from(out)};
    STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::linalg_solve_triangular", "out",
                                                        stack.data(), TORCH_ABI_VERSION));
    // The caller's reference to it, which would be lost otherwise.
    torch::stable::detail::to<Tensor>(stack[0]);
}

// Dense torch on unpacked copies. The ops of packedtri return contiguous tensors.
Tensor dense_solve(const Tensor& packed, const Tensor& b, int64_t n, int64_t kind, int64_t b_kind,
                   bool left, bool unit) {
    const bool typed = b_kind != static_cast<int64_t>(Kind::Dense);
    const Tensor t = unpack_here(packed, n, kind);
    Tensor x = typed ? unpack_here(b, n, b_kind) : b;
    // Dense torch would copy one triangle for each matrix of rows on its left: they are one tall one.
    const bool tall = !typed && !left && packed.dim() == 1 && b.dim() > 2;
    if (tall) x = torch::stable::reshape(x, {-1, n});
    const bool upper = kind == static_cast<int64_t>(Kind::Upper);
    // What torch finds is stored by columns. Of the transposed equation these are our rows, and need no copy; with few of them
    // that solve takes longer than a copy more (measured on an H200).
    const bool doubles = b.scalar_type() == torch::headeronly::ScalarType::ComplexDouble;
    if (!typed && left && packed.dim() == 1 && b.dim() == 2 && (doubles ? 8 : 2) * b.size(1) >= n) {
        const Tensor result = torch::stable::new_empty(b, sizes_of(b));
        const auto turned = [](const Tensor& m) { return torch::stable::transpose(m, 0, 1); };
        solve_into(turned(result), turned(t), turned(b), !upper, !left, unit);
        return result;
    }
    std::array<StableIValue, 5> stack{
        torch::stable::detail::from(t), torch::stable::detail::from(x),
        torch::stable::detail::from(upper), torch::stable::detail::from(left),
        torch::stable::detail::from(unit)};
    STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::linalg_solve_triangular", "",
                                                        stack.data(), TORCH_ABI_VERSION));
    auto y = torch::stable::detail::to<Tensor>(stack[0]);
    if (tall) y = torch::stable::reshape(y, sizes_of(b));
    return typed ? pack_here(y, b_kind) : torch::stable::contiguous(y);
}

std::tuple<Tensor, Tensor> dense_cholesky(const Tensor& packed, int64_t n) {
    const Tensor a = unpack_here(packed, n, hermitian_kind);
    std::array<StableIValue, 3> stack{torch::stable::detail::from(a),
                                      torch::stable::detail::from(false),   // upper
                                      torch::stable::detail::from(false)};  // check_errors
    STABLE_TORCH_ERROR_CODE_CHECK(
        torch_call_dispatcher("aten::linalg_cholesky_ex", "", stack.data(), TORCH_ABI_VERSION));
    const auto factor = torch::stable::detail::to<Tensor>(stack[0]);
    return {pack_here(factor, static_cast<int64_t>(Kind::Lower)),
            torch::stable::detail::to<Tensor>(stack[1])};
}

Tensor solve(const Tensor& packed, const Tensor& b, int64_t n, int64_t kind, int64_t b_kind,
             bool left, bool unit, const Tensor* into) {
    // Operands on different devices are told apart by the checks that follow.
    const torch::stable::accelerator::DeviceGuard guard(
        (packed.is_cuda() ? packed : b).get_device_index());
    TorchScratch scratch(packed);
    return solve_triangular(
        packed, b, n, kind, b_kind, left, unit, into,
        [&](const Solve& p) { cuda::solve(p, &scratch, current_stream()); },
        {[](const Solve& p) {
             // With one right-hand side dense torch does not round, nor in Cholesky factors.
             const bool products = p.x_kind != Kind::Dense || p.m > 1;
             return cuda::leaves_to_dense(p) && !(products && dense_torch_rounds(p.dtype));
         },
         [&](const Solve&) { return dense_solve(packed, b, n, kind, b_kind, left, unit); }});
}

// Results begin as new ones do.
using Ops = SolveOps<solve, 16>;

std::tuple<Tensor, Tensor> cholesky_cuda(Tensor packed, int64_t n) {
    const torch::stable::accelerator::DeviceGuard guard(packed.get_device_index());
    TorchScratch scratch(packed);
    return cholesky(packed, n,
                    [&](const Factor& p) { cuda::factor(p, &scratch, current_stream()); },
                    {[](const Factor& p) { return cuda::leaves_to_dense(p); },
                     [&](const Factor&) { return dense_cholesky(packed, n); }});
}

std::tuple<Tensor, Tensor> cholesky_update_cuda(Tensor packed, Tensor x, int64_t n, bool downdate) {
    const torch::stable::accelerator::DeviceGuard guard(
        (packed.is_cuda() ? packed : x).get_device_index());
    TorchScratch scratch(packed);
    return cholesky_update(packed, x, n, downdate, [&](const FactorUpdate& p) {
        cuda::update_factor(p, &scratch, current_stream());
    });
}

Tensor first_zero_cuda(Tensor packed, int64_t n) {
    const torch::stable::accelerator::DeviceGuard guard(packed.get_device_index());
    return first_zero(packed, n, [](const FirstZero& p) { cuda::first_zero(p, current_stream()); });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY_IMPL(packedtri, CUDA, m) {
    PACKEDTRI_IMPL(m, "solve_triangular", Ops::solve_triangular);
    m.impl("_solve_triangular_out", PACKEDTRI_BOX(Ops::out));
    PACKEDTRI_IMPL(m, "cholesky", cholesky_cuda);
    m.impl("cholesky_update", PACKEDTRI_BOX(cholesky_update_cuda));
    PACKEDTRI_IMPL(m, "first_zero", first_zero_cuda);
}
