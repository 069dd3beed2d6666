// Packed triangles whose diagonals have one of two factors.
#include <algorithm>
#include <cstring>

#include "elements.h"
#include "isa.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

template <class E>
void scale_run(const E* from, E* to, int64_t count, Real<E> factor) {
    if (factor == 0) {
        std::memset(static_cast<void*>(to), 0, static_cast<size_t>(count) * sizeof(E));
    } else if (factor == 1) {
        std::copy_n(from, count, to);
    } else {
        for (int64_t i = 0; i < count; ++i) from_compute(to_compute(from[i]) * factor, to[i]);
    }
}

template <class E>
void scale_band_as(const BandScale& p, int64_t batch, int64_t begin, int64_t end) {
    const E* from = static_cast<const E*>(p.packed) + batch * p.packed_batch_stride;
    E* to = static_cast<E*>(p.scaled) + batch * row_start(p.n);
    const auto inside = static_cast<Real<E>>(p.inside), outside = static_cast<Real<E>>(p.outside);
    const int64_t first = row_start(begin);
    scale_run(from + first, to + first, row_start(end) - first, outside);
    for (int64_t i = begin; i < end; ++i) {
        const int64_t left = std::max<int64_t>(i - p.farthest, 0), count = i - p.nearest + 1 - left;
        if (count > 0) scale_run(from + offset(i, left), to + offset(i, left), count, inside);
        if constexpr (Element<E>::reals == 2)
            if (p.hermitian) to[offset(i, i)].im = 0;
    }
}

}  // namespace

void scale_band(const BandScale& p, int64_t batch, int64_t begin, int64_t end) {
    with_element(p.dtype, [&](auto e) { scale_band_as<decltype(e)>(p, batch, begin, end); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
