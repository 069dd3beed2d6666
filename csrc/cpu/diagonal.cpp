#include <cstring>

#include "../index.h"
#include "kernels.h"

namespace packedtri::cpu {
namespace {

// Zeros have no bits but a sign. A complex number is two reals.
template <class Bits>
int32_t first_zero(const Bits* packed, int64_t n, int reals) {
    const auto is_zero = [](Bits x) { return static_cast<Bits>(x << 1) == 0; };
    for (int64_t i = 0; i < n; ++i) {
        const Bits* x = packed + offset(i, i) * reals;
        if (is_zero(x[0]) && is_zero(x[reals - 1])) return static_cast<int32_t>(i + 1);
    }
    return 0;
}

// Calls move(element of a packed triangle, the same of its vector) for each element of the diagonals. `bytes` is
// the size of an element, which a compiler should know.
template <class Move>
void for_each_element(const Diagonal& d, size_t bytes, const Move& move) {
    const int64_t count = d.n - d.below;
    for (int64_t b = 0; b < d.batch; ++b) {
        char* packed = static_cast<char*>(d.packed) + b * d.packed_batch_stride * bytes;
        char* elements = static_cast<char*>(d.elements) + b * count * bytes;
        for (int64_t j = 0; j < count; ++j)
            move(packed + offset(j + d.below, j) * bytes, elements + j * bytes, bytes);
    }
}

template <class Move>
void for_each_element(const Diagonal& d, const Move& move) {
    switch (element_size(d.dtype)) {
        case 2: return for_each_element(d, 2, move);
        case 4: return for_each_element(d, 4, move);
        case 8: return for_each_element(d, 8, move);
        default: return for_each_element(d, 16, move);
    }
}

}  // namespace

void diagonal(const Diagonal& d) {
    for_each_element(d, [](const char* packed, char* element, size_t bytes) {
        std::memcpy(element, packed, bytes);
    });
}

void embed_diagonal(const Diagonal& d) {
    std::memset(d.packed, 0, static_cast<size_t>(d.batch * row_start(d.n) * element_size(d.dtype)));
    for_each_element(d, [](char* packed, const char* element, size_t bytes) {
        std::memcpy(packed, element, bytes);
    });
}

void first_zero(const FirstZero& p) {
    const bool is_complex = has_complex_elements(p.dtype);
    const int reals = is_complex ? 2 : 1;
    const int64_t bytes = element_size(p.dtype) / reals;
    for (int64_t b = 0; b < p.batch; ++b) {
        const char* packed =
            static_cast<const char*>(p.packed) + b * p.batch_stride * element_size(p.dtype);
        const auto search = [&](auto bits) {
            return first_zero(reinterpret_cast<const decltype(bits)*>(packed), p.n, reals);
        };
        p.info[b] = bytes == 2   ? search(uint16_t{})
                    : bytes == 4 ? search(uint32_t{})
                                 : search(uint64_t{});
    }
}

}  // namespace packedtri::cpu
