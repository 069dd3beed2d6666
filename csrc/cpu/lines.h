// A matrix operand as the kernels read it: lines of contiguous elements.
//
// The lines of a packed triangle are its rows: line l holds positions 0 ... l, and every later
// position is a structural zero. Lower reads lines as rows of the operand, Upper as columns. In a
// Symmetric operand a later position p is position l of line p instead, in a hermitian one its
// conjugate. A dense operand has lines of full length along its unit stride. So one description, and a choice of orientation, covers
// every operand.
#pragma once

#include <algorithm>
#include <type_traits>

#include "../index.h"
#include "elements.h"
#include "transpose.h"
#include "vectors.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

template <class E>
struct Lines {
    const E* data;
    int64_t stride;
    bool triangular;
    bool are_rows;
    bool staggered;
    bool mirrored = false;
    bool hermitian = false;

    const E* line(int64_t l) const { return data + l * stride + (staggered ? row_start(l) : 0); }

    // How many of the positions [p0, p1) of line l it stores itself.
    int64_t stored(int64_t l, int64_t p0, int64_t p1) const {
        return triangular ? std::clamp<int64_t>(l + 1 - p0, 0, p1 - p0) : p1 - p0;
    }
};

template <class E>
inline Lines<E> lines_of(const Operand& x, int64_t batch) {
    const E* data = static_cast<const E*>(x.data) + batch * x.batch_stride;
    const bool block = x.stagger != Stagger::None;
    if (x.kind == Kind::Lower) return {data, block ? x.row_stride : 0, true, true, true};
    if (x.kind == Kind::Upper) return {data, block ? x.col_stride : 0, true, false, true};
    if (x.kind == Kind::Symmetric) return {data, 0, true, true, true, true, x.hermitian};
    if (x.stagger == Stagger::Columns) return {data, x.col_stride, false, false, true};
    if (block || x.col_stride == 1 || x.cols <= 1) return {data, x.row_stride, false, true, block};
    return {data, x.col_stride, false, false, false};
}

// The first `count` of a vector of sums as elements of a result, for any count.
template <class E>
inline void store_rounded(E* c, typename Vector<Real<E>>::type sums, int64_t count) {
    if constexpr (sizeof(E) < sizeof(Real<E>)) {
        E rounded[Vector<float>::lanes];
        store_narrow(rounded_bits<Vector<uint32_t>::type>(sums, E{}), rounded);
        write_first(rounded, count, c);
    } else {
        store_first(c, sums, count);
    }
}

// A rectangle of lines [l0, l1) and positions [p0, p1).
struct Rectangle {
    int64_t l0, l1, p0, p1;
};

// dst[p] = src[p] for p < stored, else zero, for one vector of dst.
template <class E>
inline void copy_vector(const E* src, int64_t stored, Compute<E>* dst) {
    using R = Real<E>;
    if constexpr (sizeof(E) < sizeof(R)) {
        constexpr int lanes = Vector<R>::lanes;
        E first[lanes];
        copy_first(src, stored, first);
        for (int l = 0; l < lanes; ++l) dst[l] = to_compute(first[l]);
    } else {
        const auto v = load_first(reinterpret_cast<const R*>(src), stored * Element<E>::reals);
        std::memcpy(dst, &v, sizeof v);
    }
}

// The first `count` elements from p on, as a vector; zeros in the other lanes.
template <class E>
inline typename Vector<Real<E>>::type load_row(const E* p, int64_t count) {
    alignas(64) Compute<E> values[Vector<Real<E>>::lanes];
    copy_vector(p, count, values);
    return load(values);
}

// dst[(l - l0) * ld + (p - p0)] = element p of line l, zero where the line does not store it. See
// copy_lines for the width.
template <int width = 0, class E>
inline void copy_stored(const Lines<E>& x, const Rectangle& r, Compute<E>* dst, int64_t ld) {
    constexpr int lanes = vector_bytes / static_cast<int>(sizeof(Compute<E>));
    const int64_t count = width > 0 ? width : r.p1 - r.p0;
    for (int64_t l = r.l0; l < r.l1; ++l, dst += ld) {
        const E* src = x.line(l) + r.p0;
        const int64_t stored = x.stored(l, r.p0, r.p1);
        for (int64_t p = 0; p < count; p += lanes) copy_vector(src + p, stored - p, dst + p);
    }
}

// dst[(p - p0) * ld + (l - l0)] = element p of line l, for a rectangle of at most block_order lines
// and positions; the rest of the block, and what is not stored, is zero.
template <class E>
inline void transpose_stored(const Lines<E>& x, const Rectangle& r, Compute<E>* dst, int64_t ld) {
    constexpr int order = block_order<Compute<E>>;
    // In registers, but for long vectors, for which that was slower.
    if constexpr (std::is_same_v<E, Compute<E>> && sizeof(E) <= 8 && vector_bytes < 64) {
        typename Vector<Bits<E>>::type lines[order];
#pragma GCC unroll 16
        for (int l = 0; l < order; ++l) {
            const int64_t line = r.l0 + l;
            lines[l] = typename Vector<Bits<E>>::type{};
            if (line < r.l1)
                lines[l] = load_first(reinterpret_cast<const Bits<E>*>(x.line(line) + r.p0),
                                      x.stored(line, r.p0, r.p1));
        }
        transpose_registers(lines);
#pragma GCC unroll 16
        for (int c = 0; c < order; ++c) std::memcpy(dst + c * ld, &lines[c], sizeof lines[c]);
        return;
    }
    alignas(64) Compute<E> block[order * order];
    copy_stored<order>(x, r, block, order);
    for (int64_t l = std::max<int64_t>(r.l1 - r.l0, 0); l < order; ++l)
        std::fill_n(block + l * order, order, Compute<E>{});
    transpose_block(block, order, dst, ld);
}

// The sign bits of the imaginary parts in a vector of complex numbers.
template <class R>
inline typename Vector<uint64_t>::type imaginary_signs(Complex<R>) {
    typename Vector<uint64_t>::type signs = {};
    for (int l = sizeof(R) / 8; l < Vector<uint64_t>::lanes; l += sizeof(R) / 4)
        signs[l] = uint64_t{1} << 63;
    return signs;
}

// A block of a symmetric matrix whose diagonal is the matrix's own: lines are loaded once, and joined
// with their transpose in registers.
template <class E>
inline void copy_diagonal_block(const Lines<E>& x, const Rectangle& r, Compute<E>* dst,
                                int64_t ld) {
    using T = Compute<E>;
    constexpr int order = block_order<T>;
    using V = typename Vector<Bits<T>>::type;
    V lines[order], mirrored[order];
#pragma GCC unroll 16
    for (int l = 0; l < order; ++l) {
        lines[l] = V{};
        if (r.l0 + l < r.l1) {
            const E* line = x.line(r.l0 + l) + r.p0;
            alignas(64) T values[order];
            copy_vector(line, l + 1, values);
            std::memcpy(&lines[l], values, sizeof lines[l]);
        }
        mirrored[l] = lines[l];
    }
    transpose_registers(mirrored);
#pragma GCC unroll 16
    for (int l = 0; l < order; ++l) {
        if (r.l0 + l >= r.l1) break;
        lines[l] |= mirrored[l];
        std::memcpy(dst + l * ld, &lines[l], sizeof lines[l]);
    }
}

// One block of a symmetric matrix that the diagonal may cross. Where it does, each half has zeros
// in place of the other, and their bits are joined; the diagonal is the same in both. A block past
// the diagonal of a hermitian one is conjugated.
template <class E>
inline void copy_mirrored_block(const Lines<E>& x, const Rectangle& r, Compute<E>* dst,
                                int64_t ld) {
    constexpr int order = block_order<Compute<E>>;
    if (r.p1 <= r.l0 + 1) return copy_stored<order>(x, r, dst, ld);
    if constexpr (sizeof(Compute<E>) == 4 || sizeof(Compute<E>) == 8)
        if (r.l0 == r.p0 && r.l1 == r.p1) return copy_diagonal_block(x, r, dst, ld);
    const bool crosses = r.p0 < r.l1;
    if (!crosses && r.l1 - r.l0 == order && !x.hermitian)
        return transpose_stored(x, {r.p0, r.p1, r.l0, r.l1}, dst, ld);
    alignas(64) Compute<E> mirrored[order * order];
    transpose_stored(x, {r.p0, r.p1, r.l0, r.l1}, mirrored, order);
    const auto bits = [](const Compute<E>* p) {
        return load(reinterpret_cast<const uint64_t*>(p));
    };
    if (crosses) copy_stored<order>(x, r, dst, ld);
    for (int64_t l = 0; l < r.l1 - r.l0; ++l) {
        auto line = bits(mirrored + l * order);
        if constexpr (Element<E>::reals == 2)
            if (x.hermitian && !crosses) line ^= imaginary_signs(Compute<E>{});
        if (crosses) line |= bits(dst + l * ld);
        std::memcpy(dst + l * ld, &line, sizeof line);
    }
}

// Makes a block on the diagonal of a symmetric matrix one of the Hermitian matrix with the same lower
// triangle.
template <class R>
inline void make_hermitian(const Rectangle& r, Complex<R>* dst, int64_t ld) {
    for (int64_t l = r.l0; l < r.l1; ++l, dst += ld) {
        for (int64_t p = std::max(r.p0, l + 1); p < r.p1; ++p) dst[p - r.p0].im *= -1;
        if (r.p0 <= l && l < r.p1) dst[l - r.p0].im = 0;
    }
}
template <class T>
inline void make_hermitian(const Rectangle&, T*, int64_t) {}

// dst[(l - l0) * ld + (p - p0)] = element p of line l, zero where there is none. Lines of dst are
// written in whole vectors, with zeros past p1; `width`, where it is not zero, promises that
// p1 - p0 <= width, so that the loop over vectors can be unrolled and always covers the width.
template <int width = 0, class E>
inline void copy_lines(const Lines<E>& x, const Rectangle& r, Compute<E>* dst, int64_t ld) {
    if (!x.mirrored) return copy_stored<width>(x, r, dst, ld);
    constexpr int order = block_order<Compute<E>>;
    const int64_t count = width > 0 ? width : r.p1 - r.p0;
    for (int64_t l = r.l0; l < r.l1; l += order, dst += order * ld)
        for (int64_t p = 0; p < count; p += order) {
            const int64_t p0 = r.p0 + p, p1 = std::clamp(r.p1, p0, p0 + order);
            const Rectangle block{l, std::min(l + order, r.l1), p0, p1};
            copy_mirrored_block(x, block, dst + p, ld);
            const bool diagonal = block.p0 < block.l1 && block.l0 < block.p1;
            if (x.hermitian && diagonal) make_hermitian(block, dst + p, ld);
        }
}

// dst[(p - p0) * ld + (l - l0)] = element p of line l; zeros as above. Goes through blocks of
// `order` lines and positions; ld is a multiple of the order. Not for mirrored lines, which are
// rows and columns alike, or conjugates of these.
template <class E>
inline void transpose_lines(const Lines<E>& x, const Rectangle& r, Compute<E>* dst, int64_t ld) {
    constexpr int order = block_order<Compute<E>>;
    alignas(64) Compute<E> last[order * order];
    for (int64_t l = r.l0; l < r.l0 + ld; l += order, dst += order)
        for (int64_t p = r.p0; p < r.p1; p += order) {
            const Rectangle block{l, std::min(l + order, r.l1), p, std::min(p + order, r.p1)};
            if (block.p1 - p == order) {
                transpose_stored(x, block, dst + (p - r.p0) * ld, ld);
                continue;
            }
            transpose_stored(x, block, last, order);
            for (int64_t q = p; q < block.p1; ++q)
                std::copy_n(last + (q - p) * order, order, dst + (q - r.p0) * ld);
        }
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
