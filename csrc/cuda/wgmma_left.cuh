// The same instruction with the left operand in registers, which need not be aligned anywhere.
#pragma once

#include "wgmma.cuh"

namespace packedtri::cuda::ptx {

#if PACKEDTRI_HOPPER

#define PACKEDTRI_REGISTERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PACKEDTRI_ACCS_8(d) PACKEDTRI_RUN_8(d, 0)

// %0 ... are the accumulators; then come the words of the left operand, the descriptor of the right one, whether to add to
// what the accumulators hold, and whether the rows of memory of the right operand run across k.
#define PACKEDTRI_WGMMA_LEFT(N, ACCS, TYPE, A0, A1, A2, A3, B, ADD, B_MAJOR)                       \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD                                           \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N TYPE " {" PACKEDTRI_REGISTERS_##ACCS       \
                 "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1, " B_MAJOR ";\n}"            \
                 : PACKEDTRI_ACCS_##ACCS(d)                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), \
                   "n"(B_ACROSS))

#define PACKEDTRI_WGMMA_LEFT_OF(TYPE)                                                         \
    if constexpr (N == 16)                                                                    \
        PACKEDTRI_WGMMA_LEFT(16, 8, TYPE, "%8", "%9", "%10", "%11", "%12", "%13", "%14");     \
    else if constexpr (N == 32)                                                               \
        PACKEDTRI_WGMMA_LEFT(32, 16, TYPE, "%16", "%17", "%18", "%19", "%20", "%21", "%22");  \
    else if constexpr (N == 64)                                                               \
        PACKEDTRI_WGMMA_LEFT(64, 32, TYPE, "%32", "%33", "%34", "%35", "%36", "%37", "%38");  \
    else if constexpr (N == 128)                                                              \
        PACKEDTRI_WGMMA_LEFT(128, 64, TYPE, "%64", "%65", "%66", "%67", "%68", "%69", "%70"); \
    else                                                                                      \
        PACKEDTRI_WGMMA_LEFT(256, 128, TYPE, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#endif

// d = a b, or d += a b, as in wgmma.cuh. Lane l has in word x elements 8 (x / 2) + l % 4 * 2 and 1 more of row half x % 2 of
// what it has of d. They must not change before wgmma_wait.
template <int N, bool B_ACROSS>
__device__ __forceinline__ void wgmma(float* d, const uint32_t (&a)[4], uint64_t b, bool add,
                                      __nv_bfloat16) {
#if PACKEDTRI_HOPPER
    PACKEDTRI_WGMMA_LEFT_OF("k16.f32.bf16.bf16");
#endif
}
template <int N, bool B_ACROSS>
__device__ __forceinline__ void wgmma(float* d, const uint32_t (&a)[4], uint64_t b, bool add,
                                      __half) {
#if PACKEDTRI_HOPPER
    PACKEDTRI_WGMMA_LEFT_OF("k16.f32.f16.f16");
#endif
}

// Stores the sums that a lane has of one row of a product of N columns, in half h of its rows, to that row.
template <int N>
__device__ __forceinline__ void store_sums(const float* d, int h, float* row) {
#pragma unroll
    for (int c = 0; c < N / 8; ++c)
        *reinterpret_cast<float2*>(row + 8 * c + threadIdx.x % 4 * 2) =
            make_float2(d[4 * c + 2 * h], d[4 * c + 2 * h + 1]);
}

}  // namespace packedtri::cuda::ptx
