// Triangular solves: the triangle is cut in two, T = [T11 0; T21 T22], again and again. Between the
// solves with T11 and T22 one product with T21 does the work.
#include "../solve_problem.h"

#include "blocks.h"
#include "choice.h"
#include "kernels.h"
#include "launch.h"
#include "leaf.h"

namespace packedtri::cuda {
namespace {

class Solver {
  public:
    Solver(const Solve& p, Scratch* scratch, cudaStream_t stream)
        : p_(p), scratch_(scratch), stream_(stream), leaves_(solve_leaves(p, current_device())),
          panel_(any_forced() ? 0 : solve_panel_order(p)),
          forward_(p.left == (p.kind == Kind::Lower)),
          triangle_{const_cast<void*>(p.triangle), p.dtype, true, 0, p.triangle_batch_stride},
          x_{p.x, p.dtype, p.x_kind == Kind::Lower, p.row_stride, p.x_batch_stride} {}

    // Solves with the rows and columns `span` of the triangle.
    void solve(Span span) const {
        if (span.length() <= leaves_.most())
            return solve_leaf(p_, span, lines(span), false, stream_);
        if (solve_at_once(span)) return;
        const int64_t middle = span.begin + first_half(span.length(), panel_, leaves_);
        const Span first{span.begin, middle}, second{middle, span.end};
        solve(forward_ ? first : second);
        update(first, second);
        solve(forward_ ? second : first);
    }

  private:
    bool solve_at_once(Span span) const {
        return span.length() <= panel_ && scratch_ &&
               solve_panel(p_, span, lines(span), *scratch_, stream_);
    }

    // The right-hand sides that have elements in these rows or columns.
    Span lines(Span span) const {
        if (!x_.packed) return {0, p_.m};
        return p_.left ? Span{0, span.end} : Span{span.begin, p_.n};
    }

    // With T21 off the diagonal, in the rows `second` and the columns `first`.
    void update(Span first, Span second) const {
        Operand t = triangle_.operand(second, first);
        if (p_.kind == Kind::Upper) t = transposed(t);
        const Span solved = forward_ ? first : second, other = forward_ ? second : first;
        if (p_.left) update_rows(t, solved, other);
        else update_cols(t, solved, other);
    }

    // X[other, :] -= T X[solved, :]. Of a packed X only stored elements take part: forward, columns
    // past those of `solved` are zero there; backward, the diagonal block of the result is cut.
    void update_rows(const Operand& t, Span solved, Span other) const {
        if (!x_.packed) return subtract(t, solved, {0, p_.m}, other, {0, p_.m});
        const Span before{0, std::min(solved.begin, other.begin)};
        const Span diagonal = forward_ ? solved : other;
        subtract(t, solved, before, other, before);
        subtract(t, solved, diagonal, other, diagonal);
    }

    void subtract(const Operand& t, Span b_rows, Span b_cols, Span c_rows, Span c_cols) const {
        if (b_cols.length() == 0) return;
        mm(subtraction(p_.dtype, p_.batch, t, x_.operand(b_rows, b_cols),
                       x_.result(c_rows, c_cols)),
           scratch_, stream_);
    }

    // X[:, other] -= X[:, solved] T, likewise.
    void update_cols(const Operand& t, Span solved, Span other) const {
        if (!x_.packed) return subtract_cols({0, p_.m}, t, solved, other);
        const Span second = forward_ ? other : solved, after{second.end, p_.n};
        subtract_cols(second, t, solved, other);
        subtract_cols(after, t, solved, other);
    }

    void subtract_cols(Span rows, const Operand& t, Span solved, Span other) const {
        if (rows.length() == 0) return;
        mm(subtraction(p_.dtype, p_.batch, x_.operand(rows, solved), t, x_.result(rows, other)),
           scratch_, stream_);
    }

    const Solve& p_;
    Scratch* const scratch_;
    const cudaStream_t stream_;
    const Leaves leaves_;
    const int64_t panel_;
    const bool forward_;
    const Blocked triangle_, x_;
};

}  // namespace

void solve(const Solve& p, Scratch* scratch, cudaStream_t stream) {
    check_reach({p.n, p.m, p.batch});
    if (p.x_kind == Kind::Dense && p.m <= most_thin(p.dtype)) solve_thin(p, stream);
    else Solver(p, scratch, stream).solve({0, p.n});
}

}  // namespace packedtri::cuda
