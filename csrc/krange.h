// Which part of the sum over k a block of the result needs.
#pragma once

#include <type_traits>

#include "index.h"
#include "problem.h"

namespace packedtri {

template <class Index>
struct BasicKRange {
    Index begin, end;
    PACKEDTRI_HD constexpr Index length() const { return end > begin ? end - begin : 0; }
};
using KRange = BasicKRange<int64_t>;

// The result block has rows [i0, i1) and columns [j0, j1). A is zero right of its diagonal when
// Lower (k <= i) and left of it when Upper (k >= i); B likewise in (k, j). The sum needs the
// intersection. For Lower times Lower that is j <= k <= i.
// `Index` is what it is computed in.
template <class Index = int64_t>
PACKEDTRI_HD constexpr BasicKRange<Index> k_range(Kind a, Kind b, std::common_type_t<Index> i0,
                                                  std::common_type_t<Index> i1,
                                                  std::common_type_t<Index> j0,
                                                  std::common_type_t<Index> j1,
                                                  std::common_type_t<Index> k) {
    BasicKRange<Index> r{0, k};
    if (a == Kind::Lower && i1 < r.end) r.end = i1;
    if (a == Kind::Upper && i0 > r.begin) r.begin = i0;
    if (b == Kind::Lower && j0 > r.begin) r.begin = j0;
    if (b == Kind::Upper && j1 < r.end) r.end = j1;
    return r;
}

}  // namespace packedtri
