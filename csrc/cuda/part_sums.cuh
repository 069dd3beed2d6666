// Adds up the parts of a sum that blocks of threads have computed, through memory.
#pragma once

#include <type_traits>

#include "hopper.cuh"
#include "part_work.h"

namespace packedtri::cuda {

__device__ __forceinline__ double2 vector_of(const double* x) { return {x[0], x[1]}; }
__device__ __forceinline__ float4 vector_of(const float* x) { return {x[0], x[1], x[2], x[3]}; }
__device__ __forceinline__ void add_vector(double* x, double2 y) { x[0] += y.x, x[1] += y.y; }
__device__ __forceinline__ void add_vector(float* x, float4 y) {
    x[0] += y.x, x[1] += y.y, x[2] += y.z, x[3] += y.w;
}

// Adds up the parts of a sum, of which each of `WARPS` warps has its own in registers. Whoever comes last has the whole
// sum, and true for an answer; the others leave theirs in memory, and are done. Nobody waits. Parts are added in their
// order, but for that of the first two, which makes no difference, so that results do not depend on who comes last.
//
// `words`: one for each place and warp, zero when the launch starts; that of the first part counts. `sums`: WARPS * COUNT *
// 32 for each place.
template <int WARPS, class T, int COUNT>
__device__ __forceinline__ bool add_parts(T (&acc)[COUNT], const PartWork::Piece& piece, int warp,
                                          int* words, T* sums) {
    using Vector = std::conditional_t<sizeof(T) == 8, double2, float4>;
    constexpr int VECTOR = static_cast<int>(sizeof(Vector) / sizeof(T)), OF_WARP = COUNT * 32;
    static_assert(COUNT % VECTOR == 0, "");
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto at = [&](int part) {
        return sums + (int64_t{piece.place(part)} * WARPS + warp) * OF_WARP + lane * VECTOR;
    };
    const auto add = [&](int part) {
        const T* from = at(part);
#pragma unroll
        for (int e = 0; e < COUNT; e += VECTOR)
            add_vector(acc + e, __ldcg(reinterpret_cast<const Vector*>(from + e * 32)));
    };
    // So one of the first two need not read its own.
    const bool one_of_first = piece.part < 2;
    int* word = words + piece.place(0) * WARPS + warp;
    int before = lane == 0 && one_of_first ? ptx::load_acquire(word) : 0;
    if (__shfl_sync(~0u, before, 0) != piece.parts - 1) {
        T* to = at(piece.part);
#pragma unroll
        for (int e = 0; e < COUNT; e += VECTOR)
            __stcg(reinterpret_cast<Vector*>(to + e * 32), vector_of(acc + e));
        // One lane speaks for all of them, which meet it before and after.
        __syncwarp();
        if (lane == 0) before = ptx::add_acquire_release(word, 1);
        if (__shfl_sync(~0u, before, 0) != piece.parts - 1) return false;
    }
    __syncwarp();
    // To minus zero, which leaves every number as it is that is added.
    if (!one_of_first)
#pragma unroll
        for (int e = 0; e < COUNT; ++e) acc[e] = -T{0};
    int part = one_of_first ? 1 - piece.part : 0;
#pragma unroll 1
    for (int next = one_of_first ? 2 : 1;; ++next) {
        add(part);
        if (next >= piece.parts) return true;
        part = next;
    }
}

}  // namespace packedtri::cuda
