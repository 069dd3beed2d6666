// The tensor-core instruction of Hopper: four warps multiply tiles that lie in shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "hopper.cuh"
#include "scalar.cuh"

namespace packedtri::cuda::ptx {

// Orders a warpgroup's accesses to its accumulators before its next products.
__device__ __forceinline__ void wgmma_fence() {
#if PACKEDTRI_HOPPER
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wgmma_commit() {
#if PACKEDTRI_HOPPER
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits until at most `PENDING` of the warpgroup's groups are under way.
template <int PENDING = 0>
__device__ __forceinline__ void wgmma_wait() {
#if PACKEDTRI_HOPPER
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#endif
}

#if PACKEDTRI_HOPPER

// The operands of an instruction with 16, 32, 64, 96 or 128 accumulators a thread.
// clang-format off
#define PACKEDTRI_REGISTERS_16 \
    "%0, %1, %2, %3, %4, %5, %6, %7" ", " \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define PACKEDTRI_REGISTERS_32 \
    PACKEDTRI_REGISTERS_16 ", " \
    "%16, %17, %18, %19, %20, %21, %22, %23" ", " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define PACKEDTRI_REGISTERS_64 \
    PACKEDTRI_REGISTERS_32 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39" ", " \
    "%40, %41, %42, %43, %44, %45, %46, %47" ", " \
    "%48, %49, %50, %51, %52, %53, %54, %55" ", " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define PACKEDTRI_REGISTERS_96 \
    PACKEDTRI_REGISTERS_64 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71" ", " \
    "%72, %73, %74, %75, %76, %77, %78, %79" ", " \
    "%80, %81, %82, %83, %84, %85, %86, %87" ", " \
    "%88, %89, %90, %91, %92, %93, %94, %95"
#define PACKEDTRI_REGISTERS_128 \
    PACKEDTRI_REGISTERS_96 ", " \
    "%96, %97, %98, %99, %100, %101, %102, %103" ", " \
    "%104, %105, %106, %107, %108, %109, %110, %111" ", " \
    "%112, %113, %114, %115, %116, %117, %118, %119" ", " \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define PACKEDTRI_RUN_8(d, x) \
    "+f"((d)[(x)]), "+f"((d)[(x) + 1]), "+f"((d)[(x) + 2]), "+f"((d)[(x) + 3]), \
    "+f"((d)[(x) + 4]), "+f"((d)[(x) + 5]), "+f"((d)[(x) + 6]), "+f"((d)[(x) + 7])
#define PACKEDTRI_RUN_16(d, x) PACKEDTRI_RUN_8(d, x), PACKEDTRI_RUN_8(d, (x) + 8)
#define PACKEDTRI_RUN_32(d, x) PACKEDTRI_RUN_16(d, x), PACKEDTRI_RUN_16(d, (x) + 16)
#define PACKEDTRI_ACCS_16(d) PACKEDTRI_RUN_16(d, 0)
#define PACKEDTRI_ACCS_32(d) PACKEDTRI_RUN_32(d, 0)
#define PACKEDTRI_ACCS_64(d) PACKEDTRI_ACCS_32(d), PACKEDTRI_RUN_32(d, 32)
#define PACKEDTRI_ACCS_96(d) PACKEDTRI_ACCS_64(d), PACKEDTRI_RUN_32(d, 64)
#define PACKEDTRI_ACCS_128(d) PACKEDTRI_ACCS_96(d), PACKEDTRI_RUN_32(d, 96)
// clang-format on

// %0 ... are the accumulators; then come the descriptors, whether to add to what the accumulators
// hold, and for each operand whether its rows of memory run across k.
#define PACKEDTRI_WGMMA(N, ACCS, TYPE, A, B, ADD, A_MAJOR, B_MAJOR)                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD                                     \
                 ", 0;\n"                                                                    \
                 "wgmma.mma_async.sync.aligned.m64n" #N TYPE " {" PACKEDTRI_REGISTERS_##ACCS \
                 "}, " A ", " B ", p, 1, 1, " A_MAJOR ", " B_MAJOR ";\n}"                    \
                 : PACKEDTRI_ACCS_##ACCS(d)                                                  \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(A_ACROSS), "n"(B_ACROSS))

#define PACKEDTRI_WGMMA_OF(TYPE)                                                                  \
    if constexpr (N == 32) PACKEDTRI_WGMMA(32, 16, TYPE, "%16", "%17", "%18", "%19", "%20");      \
    else if constexpr (N == 64) PACKEDTRI_WGMMA(64, 32, TYPE, "%32", "%33", "%34", "%35", "%36"); \
    else if constexpr (N == 128)                                                                  \
        PACKEDTRI_WGMMA(128, 64, TYPE, "%64", "%65", "%66", "%67", "%68");                        \
    else if constexpr (N == 192)                                                                  \
        PACKEDTRI_WGMMA(192, 96, TYPE, "%96", "%97", "%98", "%99", "%100");                       \
    else PACKEDTRI_WGMMA(256, 128, TYPE, "%128", "%129", "%130", "%131", "%132")

// Of 32 columns and elements whose rows run along k.
#define PACKEDTRI_WGMMA_ALONG(TYPE)                                            \
    asm volatile(                                                              \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n32" TYPE " {" PACKEDTRI_REGISTERS_16 \
        "}, %16, %17, p, 1, 1;\n}"                                             \
        : PACKEDTRI_ACCS_16(d)                                                 \
        : "l"(a), "l"(b), "r"(static_cast<int>(add)))

#endif

// d = a b, or d += a b, for 64 x K by K x N tiles, K elements being 32 bytes. Lane l of warp w holds
// rows 16 w + l / 4 and 8 more, columns l % 4 * 2 and 1 more of each 8: element (row half h, column
// 8 c + l % 4 * 2 + e) is d[4 c + 2 h + e]. The products run in the background until wgmma_wait.
template <int N, bool A_ACROSS, bool B_ACROSS>
__device__ __forceinline__ void wgmma(float* d, uint64_t a, uint64_t b, bool add, __nv_bfloat16) {
#if PACKEDTRI_HOPPER
    PACKEDTRI_WGMMA_OF("k16.f32.bf16.bf16");
#endif
}
template <int N, bool A_ACROSS, bool B_ACROSS>
__device__ __forceinline__ void wgmma(float* d, uint64_t a, uint64_t b, bool add, __half) {
#if PACKEDTRI_HOPPER
    PACKEDTRI_WGMMA_OF("k16.f32.f16.f16");
#endif
}
// The elements of TF32 have 4 bytes, and run along k.
template <int N, bool A_ACROSS, bool B_ACROSS>
__device__ __forceinline__ void wgmma(float* d, uint64_t a, uint64_t b, bool add, float) {
    static_assert(N == 32 && !A_ACROSS && !B_ACROSS);
#if PACKEDTRI_HOPPER
    PACKEDTRI_WGMMA_ALONG("k8.f32.tf32.tf32");
#endif
}

}  // namespace packedtri::cuda::ptx
