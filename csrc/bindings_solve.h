// Shared by the CPU and the CUDA bindings of solves and factorizations, as bindings.h is by those of
// products.
#pragma once

#include <tuple>

#include "arguments.h"
#include "bindings.h"
#include "solve_problem.h"

namespace packedtri {

// Into `into`, if it is not null: contiguous, for a dense b. It may be b.
Tensor solve_triangular(const Tensor& packed, const Tensor& b, int64_t n, int64_t kind,
                        int64_t b_kind, bool left, bool unit, const Tensor* into,
                        const std::function<void(const Solve&)>& run,
                        const OtherWay<Tensor, Solve>& other = {});
// How a device solves, into `into` if it is not null.
using SolveTriangular = Tensor(const Tensor& packed, const Tensor& b, int64_t n, int64_t kind,
                               int64_t b_kind, bool left, bool unit, const Tensor* into);
// The ops of a device for triangular solves: `solve_triangular`, its bare form, and `_solve_triangular_out`, whose `out` may
// be a dense `b`.
template <SolveTriangular solve, int64_t alignment>
struct SolveOps {
    static Tensor solve_triangular(Tensor packed, Tensor b, int64_t n, int64_t kind, int64_t b_kind,
                                   bool left, bool unit) {
        return solve(packed, b, n, kind, b_kind, left, unit, nullptr);
    }
    static void out(Tensor packed, Tensor b, int64_t n, int64_t kind, bool left, bool unit,
                    Tensor out) {
        const bool apart =
            !may_overlap(out, packed) && (same_memory(out, b) || !may_overlap(out, b));
        constexpr auto dense = static_cast<int64_t>(Kind::Dense);
        compute_into(out, b, alignment, apart, "_solve_triangular_out", [&](const Tensor* into) {
            return solve(packed, b, n, kind, dense, left, unit, into);
        });
    }
};
std::tuple<Tensor, Tensor> cholesky_update(const Tensor& packed, const Tensor& x, int64_t n,
                                           bool downdate,
                                           const std::function<void(const FactorUpdate&)>& run);
std::tuple<Tensor, Tensor> cholesky(const Tensor& packed, int64_t n,
                                    const std::function<void(const Factor&)>& run,
                                    const OtherWay<std::tuple<Tensor, Tensor>, Factor>& other = {});

Tensor first_zero(const Tensor& packed, int64_t n,
                  const std::function<void(const FirstZero&)>& run);

}  // namespace packedtri
