// Chunks of 8 elements of 2 bytes of a packed triangle.
#pragma once

#include "../index.h"
#include "chunk.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

template <class T>
struct Triangle {
    const T *data, *end;
    int n, reach;

    // Of order n, whose row i has the columns below i + reach.
    __device__ Triangle(const T* data, int n, int reach)
        : data(data), end(data + row_start(n)), n(n), reach(reach) {}

    // 8 elements of row i from column j on, zeros where none are stored.
    __device__ uint4 stored(int i, int j) const {
        const int valid = i < n ? max(0, min(8, i + reach - j)) : 0;
        return load_chunk(data + offset(i, j), valid, data, end);
    }
    // The same far from the diagonal and from the ends of the memory: all are stored.
    __device__ Chunk whole(int i, int j) const {
        Chunk chunk{};
        chunk.load(data + offset(i, j), 8);
        return chunk;
    }
    // Element i of T x, or of Tᵀ x, over stored elements only; or the share of it that one of some lanes adds up.
    template <int LANES = 1>
    __device__ typename Accumulator<T>::type sum(const T* x, int64_t step, int i, bool by_rows,
                                                 int lane = 0) const {
        typename Accumulator<T>::type sum = 0;
        const int first = by_rows ? 0 : i + 1 - reach, last = by_rows ? i + reach : n;
        constexpr int AT_ONCE = LANES > 1 ? 8 : 1;
#pragma unroll AT_ONCE
        for (int k = first + lane; k < last; k += LANES)
            fma_into(sum, Accumulator<T>::widen(data[by_rows ? offset(i, k) : offset(k, i)]),
                     Accumulator<T>::widen(x[k * step]));
        return sum;
    }
};

}  // namespace packedtri::cuda
