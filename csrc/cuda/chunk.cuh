// Chunks of 8 elements of 2 bytes at any even address, which no wide load accepts: each is cut out of
// the two aligned 16-byte words that hold it.
#pragma once

#include "ptx.cuh"

namespace packedtri::cuda {

// Moves the elements of w down by `shift` < 8; the last 4 words are used up.
template <int N>
__device__ __forceinline__ void shift_words(uint32_t (&w)[N], int shift) {
    const bool four = shift & 4, two = shift & 2;
#pragma unroll
    for (int x = 0; x < N - 2; ++x) w[x] = four ? w[x + 2] : w[x];
#pragma unroll
    for (int x = 0; x < N - 3; ++x) w[x] = two ? w[x + 1] : w[x];
#pragma unroll
    for (int x = 0; x < N - 4; ++x) w[x] = __funnelshift_r(w[x], w[x + 1], (shift & 1) * 16);
}

// 8 elements, from `shift` on among the 16 in `words`.
struct Chunk {
    uint4 words[2];
    int shift;

    // Reads the words with `valid` stored elements, and none without one. The loads are predicated,
    // not branched around: a register that two paths write makes the processor wait for the load
    // where they meet, instead of where the value is used.
    __device__ __forceinline__ void load(const void* from, int valid) {
        const uintptr_t address = reinterpret_cast<uintptr_t>(from);
        const uint4* low = reinterpret_cast<const uint4*>(address & ~uintptr_t{15});
        shift = static_cast<int>(address & 15) / 2;
        ptx::load_if(words[0], low, valid > 0);
        ptx::load_if(words[1], low + 1, valid > 0 && shift + valid > 8);
    }

    __device__ __forceinline__ uint4 cut() const {
        uint32_t w[8] = {words[0].x, words[0].y, words[0].z, words[0].w,
                         words[1].x, words[1].y, words[1].z, words[1].w};
        shift_words(w, shift);
        return make_uint4(w[0], w[1], w[2], w[3]);
    }
};

// The first `valid` of 8 elements, zeros behind them.
__device__ __forceinline__ uint4 clipped(uint4 word, int valid) {
    const auto mask = [&](int x) { return ptx::low_bits(max(0, 16 * valid - 32 * x)); };
    return make_uint4(word.x & mask(0), word.y & mask(1), word.z & mask(2), word.w & mask(3));
}

template <class T>
__device__ __forceinline__ uint4 load_elements(const T* from, int valid) {
    const auto* bits = reinterpret_cast<const uint16_t*>(from);
    uint32_t w[4] = {};
#pragma unroll
    for (int e = 0; e < 8; ++e)
        if (e < valid) w[e / 2] |= uint32_t{bits[e]} << e % 2 * 16;
    return make_uint4(w[0], w[1], w[2], w[3]);
}

// 8 elements of 2 bytes from any even address, of which `valid` are stored, zeros behind them. They
// are cut out of the two aligned words that hold them, unless these reach out of [begin, end).
template <class T>
__device__ __forceinline__ uint4 load_chunk(const T* from, int valid, const T* begin,
                                            const T* end) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(from);
    const int shift = static_cast<int>(address & 15) / 2;
    if (valid > 0 && (from - shift < begin || from - shift + (shift + valid > 8 ? 16 : 8) > end))
        return load_elements(from, valid);
    Chunk chunk{};
    chunk.load(from, valid);
    return clipped(chunk.cut(), valid);
}

}  // namespace packedtri::cuda
