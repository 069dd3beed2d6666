// Cholesky factors by columns: the left half of a panel is factored, its product with itself is
// taken from the right half, and that is factored.
#include "../solve_problem.h"

#include "blocks.h"
#include "choice.h"
#include "kernels.h"
#include "launch.h"
#include "leaf.h"

namespace packedtri::cuda {
namespace {

class Factorizer {
  public:
    Factorizer(const Factor& p, Scratch* scratch, cudaStream_t stream)
        : p_(p), scratch_(scratch), stream_(stream), leaves_{leaf_order(p.dtype), 0},
          panel_(any_forced() ? 0 : panel_order(p)),
          a_{p.packed, p.dtype, true, 0, p.batch_stride} {}

    // Factors the columns `panel`, from their diagonal down.
    void factor(Span panel) const {
        const int64_t length = panel.length();
        if (length <= leaves_.most()) return factor_by_leaf(panel);
        if (factor_at_once(panel)) return;
        const int64_t middle = panel.begin + first_half(length, panel_, leaves_);
        factor({panel.begin, middle});
        update({panel.begin, middle}, {middle, panel.end});
        factor({middle, panel.end});
    }

  private:
    bool factor_at_once(Span panel) const {
        return panel.length() <= panel_ && scratch_ && factor_panel(p_, panel, *scratch_, stream_);
    }

    // The rows below the diagonal block L11 are solutions of X L11^H = A.
    void factor_by_leaf(Span panel) const {
        if (panel.begin == 0)
            check(cudaMemsetAsync(p_.info, 0, static_cast<size_t>(p_.batch) * sizeof(int32_t),
                                  stream_),
                  "cannot clear info");
        factor_leaf(p_, panel, stream_);
        const Solve below{p_.dtype,  Kind::Upper, false,          false,           p_.n,
                          p_.n,      p_.batch,    p_.packed,      p_.batch_stride, Kind::Lower,
                          p_.packed, 0,           p_.batch_stride};
        solve_leaf(below, panel, {panel.end, p_.n}, true, stream_);
    }

    void update(Span done, Span next) const {
        const Span rows{next.begin, p_.n};
        Product p = subtraction(p_.dtype, p_.batch, a_.operand(rows, done),
                                transposed(a_.operand(next, done)), a_.result(rows, next));
        p.conj_b = true;
        mm(p, scratch_, stream_);
    }

    const Factor& p_;
    Scratch* const scratch_;
    const cudaStream_t stream_;
    const Leaves leaves_;
    const int64_t panel_;
    const Blocked a_;
};

}  // namespace

void factor(const Factor& p, Scratch* scratch, cudaStream_t stream) {
    check_reach({p.n, p.batch});
    Factorizer(p, scratch, stream).factor({0, p.n});
}

}  // namespace packedtri::cuda
