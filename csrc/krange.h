// Which part of the sum over k a block of the result needs.
#pragma once

#include "index.h"
#include "problem.h"

namespace packedtri {

struct KRange {
    int64_t begin, end;
    PACKEDTRI_HD constexpr int64_t length() const { return end > begin ? end - begin : 0; }
};

// The result block has rows [i0, i1) and columns [j0, j1). A is zero right of its diagonal when
// Lower (k <= i) and left of it when Upper (k >= i); B likewise in (k, j). The sum needs the
// intersection. For Lower times Lower that is j <= k <= i.
PACKEDTRI_HD constexpr KRange k_range(Kind a, Kind b, int64_t i0, int64_t i1, int64_t j0,
                                      int64_t j1, int64_t k) {
    KRange r{0, k};
    if (a == Kind::Lower && i1 < r.end) r.end = i1;
    if (a == Kind::Upper && i0 > r.begin) r.begin = i0;
    if (b == Kind::Lower && j0 > r.begin) r.begin = j0;
    if (b == Kind::Upper && j1 < r.end) r.end = j1;
    return r;
}

}  // namespace packedtri
