// All elements of packed triangles that lie one after another, shared out to the threads of a launch.
#pragma once

#include "../index.h"

namespace packedtri::cuda {

// A thread has elements that lie so many apart that the lanes of a warp have neighbours.
constexpr int ELEMENTS_A_THREAD = 4;

inline int64_t blocks_of_elements(int threads, int64_t count) {
    return ceil_div(count, int64_t{threads} * ELEMENTS_A_THREAD);
}

// Calls f(b, t, i) for the elements of this thread, `count` of all in triangles of `size`: element t of triangle b,
// in row i. A row is looked for only where the last one has ended.
template <int THREADS, class F>
__device__ __forceinline__ void for_each_element(int64_t count, int64_t size, F f) {
    constexpr int span = 32 * ELEMENTS_A_THREAD;
    const int64_t warp = (blockIdx.x * int64_t{THREADS} + threadIdx.x) / 32;
    int64_t at = warp * span + threadIdx.x % 32;
    int64_t b = 0, i = 0, first = 0, last = -1;
#pragma unroll
    for (int k = 0; k < ELEMENTS_A_THREAD; ++k, at += 32) {
        if (at >= count) return;
        if (at > last) {
            b = at / size;
            const int64_t t = at - b * size;
            i = row_of(t);
            first = b * size;
            last = first + offset(i, i);
        }
        f(b, at - first, i);
    }
}

}  // namespace packedtri::cuda
