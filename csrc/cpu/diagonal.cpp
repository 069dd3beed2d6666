#include <algorithm>
#include <cstring>
#include <type_traits>

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

// As many rows of a triangle as are worth a task, and what a row costs.
constexpr int64_t rows_a_task = 512, row_cost = 8;

// Calls run(triangle, vector, begin, end) for rows [begin, end) of each matrix.
template <class Run>
void for_each_rows(const Diagonal& d, const Threads& threads, const Run& run) {
    const int64_t parts = ceil_div(d.n, rows_a_task), bytes = element_size(d.dtype);
    for_each_group(threads, d.batch * parts, std::min(d.n, rows_a_task) * row_cost, [&](int64_t t) {
        const int64_t b = t / parts, begin = t % parts * rows_a_task;
        run(static_cast<char*>(d.packed) + b * d.packed_batch_stride * bytes,
            static_cast<char*>(d.elements) + b * (d.n - d.below) * bytes, begin,
            std::min(begin + rows_a_task, d.n));
    });
}

// Calls f with the size of an element, which a compiler then knows.
template <class F>
void with_size(DType dtype, const F& f) {
    switch (element_size(dtype)) {
        case 2: return f(std::integral_constant<int64_t, 2>{});
        case 4: return f(std::integral_constant<int64_t, 4>{});
        case 8: return f(std::integral_constant<int64_t, 8>{});
        default: return f(std::integral_constant<int64_t, 16>{});
    }
}

}  // namespace

void diagonal(const Diagonal& d, const Threads& threads) {
    with_size(d.dtype, [&](auto size) {
        constexpr int64_t bytes = size();
        for_each_rows(d, threads,
                      [&](const char* packed, char* vector, int64_t begin, int64_t end) {
                          for (int64_t i = std::max(begin, d.below); i < end; ++i)
                              std::memcpy(vector + (i - d.below) * bytes,
                                          packed + offset(i, i - d.below) * bytes, bytes);
                      });
    });
}

void embed_diagonal(const Diagonal& d, const Threads& threads) {
    with_size(d.dtype, [&](auto size) {
        constexpr int64_t bytes = size();
        for_each_rows(
            d, threads, [&](char* packed, const char* vector, int64_t begin, int64_t end) {
                std::memset(packed + row_start(begin) * bytes, 0,
                            static_cast<size_t>((row_start(end) - row_start(begin)) * bytes));
                for (int64_t i = std::max(begin, d.below); i < end; ++i)
                    std::memcpy(packed + offset(i, i - d.below) * bytes,
                                vector + (i - d.below) * bytes, bytes);
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
