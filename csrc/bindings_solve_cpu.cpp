// The schemas of solves and factorizations, and their CPU kernels.
#include "bindings_solve.h"
#include "bindings_threads.h"
#include "boxed.h"
#include "cpu/kernels.h"

namespace packedtri {
namespace {

Tensor solve(const Tensor& packed, const Tensor& b, int64_t n, int64_t kind, int64_t b_kind,
             bool left, bool unit, const Tensor* into) {
    return solve_triangular(packed, b, n, kind, b_kind, left, unit, into,
                            [](const Solve& p) { cpu::solve(p, threads()); });
}

using Ops = SolveOps<solve, 1>;

std::tuple<Tensor, Tensor> cholesky_cpu(Tensor packed, int64_t n) {
    return cholesky(packed, n, [](const Factor& p) { cpu::cholesky(p, threads()); });
}

std::tuple<Tensor, Tensor> cholesky_update_cpu(Tensor packed, Tensor x, int64_t n, bool downdate) {
    return cholesky_update(packed, x, n, downdate,
                           [](const FactorUpdate& p) { cpu::update_cholesky(p, threads()); });
}

Tensor first_zero_cpu(Tensor packed, int64_t n) {
    return first_zero(packed, n, [](const FirstZero& p) { cpu::first_zero(p); });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY_FRAGMENT(packedtri, m) {
    m.def(
        "solve_triangular(Tensor packed, Tensor b, SymInt n, int kind, int b_kind, bool left, "
        "bool unit) -> Tensor");
    m.def("cholesky(Tensor packed, SymInt n) -> (Tensor factor, Tensor info)");
    m.def(
        "cholesky_update(Tensor packed, Tensor x, SymInt n, bool downdate) -> "
        "(Tensor factor, Tensor info)");
    m.def("first_zero(Tensor packed, SymInt n) -> Tensor");
    m.def(
        "_solve_triangular(Tensor packed, Tensor b, int n, int kind, int b_kind, bool left, "
        "bool unit) -> Tensor");
    m.def(
        "_solve_triangular_out(Tensor packed, Tensor b, int n, int kind, bool left, bool unit,"
        " Tensor(a!) out) -> ()");
    m.def("_cholesky(Tensor packed, int n) -> (Tensor factor, Tensor info)");
    m.def("_first_zero(Tensor packed, int n) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(packedtri, CPU, m) {
    PACKEDTRI_IMPL(m, "solve_triangular", Ops::solve_triangular);
    m.impl("_solve_triangular_out", PACKEDTRI_BOX(Ops::out));
    PACKEDTRI_IMPL(m, "cholesky", cholesky_cpu);
    m.impl("cholesky_update", PACKEDTRI_BOX(cholesky_update_cpu));
    PACKEDTRI_IMPL(m, "first_zero", first_zero_cpu);
}
