// Cholesky factorization of packed matrices: cut in two until a part is small; what joins the halves
// are a solve and a product. In place, without workspace beside the panels of products.
#include <algorithm>

#include "isa.h"
#include "solve.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

// A21 becomes A21 L1^-H.
constexpr BlockSolve below_the_first{true, false, false, true, false};

// The order of the first leading minor that is not positive definite, 0 where all are.
int64_t factor(const Block& a, int64_t n, const Threads& threads) {
    if (n <= small_triangle) return kernels().cholesky(a, n);
    const int64_t n1 = half(n, small_triangle), n2 = n - n1;
    const Block a21 = a.from(n1, 0), a2 = a.from(n1, n1);
    if (const int64_t failed = factor(a, n1, threads)) return failed;
    solve_block(below_the_first, a, a21, n1, n2, threads);
    mm(update(a2, Kind::Lower, operand(a21, Kind::Dense, false, n2, n1),
              operand(a21, Kind::Dense, true, n1, n2), true),
       threads);
    const int64_t failed = factor(a2, n2, threads);
    return failed ? n1 + failed : 0;
}

}  // namespace

void cholesky(const Factor& p, const Threads& threads) {
    // Threads share large matrices, and take small ones each for themselves.
    constexpr int64_t worth_sharing = 256;
    const bool shared = p.n >= worth_sharing && p.batch < 4 * threads.count;
    const Threads outer{shared ? 1 : threads.count, threads.run};
    const Threads inner{shared ? threads.count : 1, threads.run};
    for_each_group(outer, p.batch, p.n * p.n * p.n / 6, [&](int64_t b) {
        const Block a = triangle(p.packed, p.dtype, b, p.batch_stride);
        p.info[b] = static_cast<int32_t>(factor(a, p.n, inner));
    });
}

void update_cholesky(const FactorUpdate& p, const Threads& threads) {
    for_each_group(threads, p.batch, p.n * p.n * p.k * 2, [&](int64_t b) {
        p.info[b] = static_cast<int32_t>(kernels().update_cholesky(p, b));
    });
}

}  // namespace packedtri::cpu
