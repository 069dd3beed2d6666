// Rows of one packed triangle, to and from dense storage.
#include "isa.h"
#include "lines.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

template <class E>
E add(E x, E y) {
    E sum;
    from_compute(to_compute(x) + to_compute(y), sum);
    return sum;
}

template <class E>
void pack_as(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    E* packed = static_cast<E*>(c.packed) + batch * c.packed_batch_stride;
    const E* dense = static_cast<const E*>(c.dense) + batch * c.dense_batch_stride;
    for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j <= i; ++j) {
            const E low = dense[i * c.row_stride + j * c.col_stride];
            const E up = dense[j * c.row_stride + i * c.col_stride];
            E v = c.kind == Kind::Upper ? up : low;
            if (c.kind == Kind::Symmetric && i != j) v = add(low, up);
            packed[offset(i, j)] = v;
        }
}

template <class E>
void unpack_as(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    const E* packed = static_cast<const E*>(c.packed) + batch * c.packed_batch_stride;
    E* dense = static_cast<E*>(c.dense) + batch * c.dense_batch_stride;
    for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j <= i; ++j) {
            const E v = packed[offset(i, j)];
            E& low = dense[i * c.row_stride + j * c.col_stride];
            E& up = dense[j * c.row_stride + i * c.col_stride];
            low = c.kind == Kind::Upper ? E{} : v;
            up = c.kind == Kind::Lower ? E{} : v;
            if (i == j) low = v;
        }
}

}  // namespace

void pack(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    with_element(c.dtype, [&](auto e) { pack_as<decltype(e)>(c, batch, begin, end); });
}

void unpack(const Conversion& c, int64_t batch, int64_t begin, int64_t end) {
    with_element(c.dtype, [&](auto e) { unpack_as<decltype(e)>(c, batch, begin, end); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
