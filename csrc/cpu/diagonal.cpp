#include <algorithm>

#include "../index.h"
#include "kernels.h"
#include "tasks.h"

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

// Calls run(triangle, vector, begin, end) for rows [begin, end) of each matrix: shares of large ones, or many small
// ones. E is any type of the size of an element.
template <class E, class Run>
void for_each_rows(const Diagonal& d, const Threads& threads, const Run& run) {
    constexpr int64_t rows = 512;
    const int64_t parts = ceil_div(d.n, rows), group = std::max<int64_t>(1, 4 * rows / d.n);
    for_each_task(threads, ceil_div(d.batch, group) * parts, [&](int64_t t) {
        const int64_t begin = t % parts * rows, end = std::min(begin + rows, d.n);
        const int64_t first = t / parts * group, last = std::min(first + group, d.batch);
        for (int64_t b = first; b < last; ++b)
            run(static_cast<E*>(d.packed) + b * d.packed_batch_stride,
                static_cast<E*>(d.elements) + b * (d.n - d.below), begin, end);
    });
}

// Calls f(place in the triangle, place in the vector) for the elements of a diagonal in rows [begin, end).
template <class F>
void for_each_element(int64_t below, int64_t begin, int64_t end, const F& f) {
    int64_t i = std::max(begin, below);
    for (int64_t at = offset(i, i - below); i < end; ++i, at += i + 1) f(at, i - below);
}

struct Wide {
    uint64_t half[2];
};

template <class F>
void with_size(DType dtype, const F& f) {
    switch (element_size(dtype)) {
        case 2: return f(uint16_t{});
        case 4: return f(uint32_t{});
        case 8: return f(uint64_t{});
        default: return f(Wide{});
    }
}

}  // namespace

void diagonal(const Diagonal& d, const Threads& threads) {
    with_size(d.dtype, [&](auto element) {
        using E = decltype(element);
        for_each_rows<E>(d, threads, [&](const E* packed, E* vector, int64_t begin, int64_t end) {
            for_each_element(d.below, begin, end,
                             [&](int64_t at, int64_t k) { vector[k] = packed[at]; });
        });
    });
}

void embed_diagonal(const Diagonal& d, const Threads& threads) {
    with_size(d.dtype, [&](auto element) {
        using E = decltype(element);
        for_each_rows<E>(d, threads, [&](E* packed, const E* vector, int64_t begin, int64_t end) {
            std::fill(packed + row_start(begin), packed + row_start(end), E{});
            for_each_element(d.below, begin, end,
                             [&](int64_t at, int64_t k) { packed[at] = vector[k]; });
        });
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
