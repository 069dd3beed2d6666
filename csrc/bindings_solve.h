// Shared by the CPU and the CUDA bindings of solves and factorizations, as bindings.h is by those of
// products.
#pragma once

#include <tuple>

#include "bindings.h"
#include "solve_problem.h"

namespace packedtri {

// Into `into`, if it is not null: contiguous, for a dense b. It may be b.
Tensor solve_triangular(const Tensor& packed, const Tensor& b, int64_t n, int64_t kind,
                        int64_t b_kind, bool left, bool unit, const Tensor* into,
                        const std::function<void(const Solve&)>& run,
                        const OtherWay<Tensor, Solve>& other = {});
// Solves into `out`: where it begins at a multiple of so many bytes and shares no memory with an operand, but for a `b`
// that lies as it does, without memory of its own.
void solve_into(const Tensor& out, int64_t alignment, const Tensor& packed, const Tensor& b,
                const std::function<Tensor(const Tensor* into)>& solve);
std::tuple<Tensor, Tensor> cholesky_update(const Tensor& packed, const Tensor& x, int64_t n,
                                           bool downdate,
                                           const std::function<void(const FactorUpdate&)>& run);
std::tuple<Tensor, Tensor> cholesky(const Tensor& packed, int64_t n,
                                    const std::function<void(const Factor&)>& run,
                                    const OtherWay<std::tuple<Tensor, Tensor>, Factor>& other = {});

Tensor first_zero(const Tensor& packed, int64_t n,
                  const std::function<void(const FirstZero&)>& run);

}  // namespace packedtri
