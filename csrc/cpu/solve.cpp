// Triangular solves: a triangle is cut in two until it is small, and what joins the halves are
// products. Right-hand sides do not depend on each other, so threads share them in strips.
#include "solve.h"

#include <algorithm>

#include "isa.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

const Threads this_thread{1, nullptr};

// One step of a solve with T cut at n1: which of the halves is solved first, and which is updated.
// T is [T1 0; T21 T2], and op(T) has T21 or its transpose beside the diagonal.
struct Halves {
    const BlockSolve& p;
    Block t1, t2, t21;
    int64_t n1, n2;

    Halves(const BlockSolve& p, const Block& t, int64_t n, int64_t n1)
        : p(p), t1(t), t2(t.from(n1, n1)), t21(t.from(n1, 0)), n1(n1), n2(n - n1) {}

    // T Y = X is solved from the top where T is lower, Y T = X from the left where it is upper.
    bool first_half_first() const { return p.left != p.upper; }

    // What of op(T) stands beside the diagonal.
    Operand beside() const {
        return p.upper ? operand(t21, Kind::Dense, true, n1, n2)
                       : operand(t21, Kind::Dense, false, n2, n1);
    }
};

void dense(const BlockSolve& p, const Block& t, const Block& x, int64_t n, int64_t m) {
    if (n <= small_triangle)
        return kernels().solve({p.upper, p.left, p.unit, p.conj, false, n, m, t, x});
    const Halves h(p, t, n, half(n, small_triangle));
    const Block x2 = p.left ? x.from(h.n1, 0) : x.from(0, h.n1);
    const bool ahead = h.first_half_first();
    const auto solve_half = [&](bool first) {
        dense(p, first ? h.t1 : h.t2, first ? x : x2, first ? h.n1 : h.n2, m);
    };
    const Block& known = ahead ? x : x2;
    const int64_t k = ahead ? h.n1 : h.n2;
    const Operand solved = operand(known, Kind::Dense, false, p.left ? k : m, p.left ? m : k);
    const Operand a = p.left ? h.beside() : solved, b = p.left ? solved : h.beside();
    solve_half(ahead);
    mm(update(ahead ? x2 : x, Kind::Dense, a, b, p.conj), this_thread);
    solve_half(!ahead);
}

void lower(const BlockSolve& p, const Block& t, const Block& x, int64_t n);

// A step of a solve whose X is a triangle, [X1 0; X21 X2], for a strip of it: its n1 columns on the
// left with X1 and X21, or its n2 rows at the bottom with X21 and X2.
void lower_step(const BlockSolve& p, const Block& t, const Block& x, int64_t n, int64_t n1) {
    const Halves h(p, t, n, n1);
    const Block x21 = x.from(n1, 0), corner = p.left ? x : x.from(n1, n1);
    const int64_t order = p.left ? h.n1 : h.n2;
    const auto solve_corner = [&] { lower(p, p.left ? h.t1 : h.t2, corner, order); };
    const auto solve_rest = [&] {
        dense(p, p.left ? h.t2 : h.t1, x21, p.left ? h.n2 : h.n1, order);
    };
    // The corner is a triangle; as an operand it is one too, and as a result.
    const bool corner_first = h.first_half_first() == p.left;
    const Operand solved = corner_first ? operand(corner, Kind::Lower, false, order, order)
                                        : operand(x21, Kind::Dense, false, h.n2, h.n1);
    const Operand a = p.left ? h.beside() : solved, b = p.left ? solved : h.beside();
    if (corner_first) {
        solve_corner();
        mm(update(x21, Kind::Dense, a, b, p.conj), this_thread);
        solve_rest();
    } else {
        solve_rest();
        mm(update(corner, Kind::Lower, a, b, p.conj), this_thread);
        solve_corner();
    }
}

void lower(const BlockSolve& p, const Block& t, const Block& x, int64_t n) {
    if (n <= small_triangle)
        return kernels().solve({p.upper, p.left, p.unit, p.conj, true, n, n, t, x});
    const int64_t n1 = half(n, small_triangle);
    lower_step(p, t, x, n, n1);
    // The step leaves the other corner, which depends on neither of the first two.
    if (p.left) {
        lower(p, t.from(n1, n1), x.from(n1, n1), n - n1);
    } else {
        lower(p, t, x, n1);
    }
}

// Right-hand sides [begin, end).
void strip(const BlockSolve& p, const Block& t, const Block& x, int64_t n, int64_t begin,
           int64_t end) {
    if (!p.lower) return dense(p, t, p.left ? x.from(0, begin) : x.from(begin, 0), n, end - begin);
    if (p.left) {
        const Block rest = x.from(begin, begin);
        if (end == n) return lower(p, t.from(begin, begin), rest, n - begin);
        return lower_step(p, t.from(begin, begin), rest, n - begin, end - begin);
    }
    if (begin == 0) return lower(p, t, x, end);
    lower_step(p, t, x, end, begin);
}

// Wide strips spread the cost of packing T over more arithmetic; several a thread share the work
// evenly. Only a solve of at least this many multiplications is cut.
int64_t strip_width(int64_t n, int64_t m, int64_t batch, int threads) {
    constexpr int64_t widest = 512, narrowest = 64, worth_cutting = 1 << 18;
    if (threads == 1 || batch >= 4 * threads || n * n * m < worth_cutting) return widest;
    const int64_t even = ceil_div(m * batch, 4 * threads);
    return std::clamp(ceil_div(even, narrowest) * narrowest, narrowest, widest);
}

// So few right-hand sides that every four are worth reading the triangle for. A small triangle stays in the
// cache and takes more at a time.
bool are_vectors(const Solve& p) {
    if (p.x_kind != Kind::Dense) return false;
    return p.m == 1 || (p.n >= 2 * small_triangle && p.m <= std::min<int64_t>(p.n / 16, 32));
}

void solve_vectors(const Solve& p, const Threads& threads) {
    const int64_t together = std::clamp<int64_t>(ceil_div(p.m * p.batch, threads.count), 1, 4),
                  groups = ceil_div(p.m, together);
    for_each_group(threads, p.batch * groups, p.n * p.n * together, [&](int64_t task) {
        const int64_t b = task / groups, i = task % groups * together;
        const Block t = triangle(p.triangle, p.dtype, b, p.triangle_batch_stride);
        const Block x =
            triangle(p.x, p.dtype, b, p.x_batch_stride).from(0, p.left ? i : i * p.row_stride);
        kernels().solve_vector({p.dtype, p.left == (p.kind == Kind::Upper), p.unit, p.n, t.data,
                                x.data, p.left ? p.row_stride : 1, std::min(together, p.m - i),
                                p.left ? 1 : p.row_stride});
    });
}

}  // namespace

void solve_block(const BlockSolve& p, const Block& t, const Block& x, int64_t n, int64_t m,
                 const Threads& threads) {
    const int64_t width = strip_width(n, m, 1, threads.count);
    for_each_task(threads, ceil_div(m, width),
                  [&](int64_t s) { strip(p, t, x, n, s * width, std::min((s + 1) * width, m)); });
}

void solve(const Solve& p, const Threads& threads) {
    if (are_vectors(p)) return solve_vectors(p, threads);
    const bool lower = p.x_kind == Kind::Lower;
    const BlockSolve kind{p.kind == Kind::Upper, p.left, p.unit, false, lower};
    const int64_t width = strip_width(p.n, p.m, p.batch, threads.count);
    const int64_t strips = ceil_div(p.m, width);
    for_each_group(threads, p.batch * strips, p.n * p.n * std::min(width, p.m), [&](int64_t task) {
        const int64_t b = task / strips, s = task % strips;
        Block x = triangle(p.x, p.dtype, b, p.x_batch_stride);
        if (!lower) x.stride = p.row_stride, x.staggered = false;
        strip(kind, triangle(p.triangle, p.dtype, b, p.triangle_batch_stride), x, p.n, s * width,
              std::min((s + 1) * width, p.m));
    });
}

}  // namespace packedtri::cpu
