// Thin wrappers of the PTX instructions that CUDA C++ does not offer.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace packedtri::cuda::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// How many elements p lies behind an address that is a multiple of 16 bytes.
template <class T>
__device__ __forceinline__ int past_word(const T* p) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
}

// x, of which the compiler knows nothing.
__device__ __forceinline__ int hidden(int x) {
    asm volatile("" : "+r"(x));
    return x;
}
template <class T>
__device__ __forceinline__ T* hidden(T* x) {
    asm volatile("" : "+l"(x));
    return x;
}

// Copies BYTES (4, 8 or 16, naturally aligned) to shared memory in the background; writes zeros
// and reads nothing when not `valid`.
template <int BYTES>
__device__ __forceinline__ void cp_async(uint32_t to, const void* from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                 "r"(valid ? BYTES : 0)
                 : "memory");
}
template <int BYTES>
__device__ __forceinline__ void cp_async(uint32_t to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES)
                 : "memory");
}
// 16 bytes when `needed`, without a branch. They go through the L1 cache, which serves the words that
// share a line faster than copies past it would.
__device__ __forceinline__ void cp_async_16(uint32_t to, const void* from, bool needed) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n"
        "@p cp.async.ca.shared.global [%0], [%1], 16;\n}" ::"r"(to),
        "l"(from), "r"(static_cast<uint32_t>(needed))
        : "memory");
}
// The same past the L1 cache, of what other blocks have written.
__device__ __forceinline__ void cp_async_past_l1(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ uint32_t load_shared(uint32_t from) {
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
}
__device__ __forceinline__ uint32_t load_shared_u16(uint32_t from) {
    uint16_t x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(from) : "memory");
    return x;
}
__device__ __forceinline__ uint4 load_shared_u32x4(uint32_t from) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(from)
                 : "memory");
    return x;
}
__device__ __forceinline__ float4 load_shared_f32x4(uint32_t from) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(from)
                 : "memory");
    return x;
}
__device__ __forceinline__ void store_shared(uint32_t to, uint16_t x) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, uint32_t x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
// The same when `needed`, without a branch.
__device__ __forceinline__ void store_shared_if(uint32_t to, uint16_t x, bool needed) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.shared.u16 [%0], %1;\n}" ::"r"(to),
                 "h"(x), "r"(static_cast<uint32_t>(needed))
                 : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
                 "r"(x.w)
                 : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `PENDING` of this thread's groups are in flight.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Loads 16 aligned bytes when `needed`; leaves `to` as it was otherwise.
__device__ __forceinline__ void load_if(uint4& to, const void* from, bool needed) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
        "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
        : "l"(from), "r"(static_cast<uint32_t>(needed)));
}
// BEYOND: so many bytes behind `from`.
template <int BEYOND = 0>
__device__ __forceinline__ void load_if(uint32_t& to, const uint32_t* from, bool needed) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p ld.global.nc.u32 %0, [%1 + %3];\n}"
                 : "+r"(to)
                 : "l"(from), "r"(static_cast<uint32_t>(needed)), "n"(BEYOND));
}

// What the tensor cores, which read no more of a float32 than TF32 has, take for x rounded to that. By two instructions;
// cvt.rna is four.
__device__ __forceinline__ uint32_t round_to_tf32(uint32_t x) {
    const float power = __uint_as_float(x & 0xff800000);
    return __float_as_uint(fmaf(power, 0x1p-11f, __uint_as_float(x)));
}

// The larger one; nan, if either is.
__device__ __forceinline__ float max_or_nan(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

// A word whose lowest `count` bits are set: all, if there are more.
__device__ __forceinline__ uint32_t low_bits(uint32_t count) {
    uint32_t mask;
    asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(mask) : "r"(count));
    return mask;
}

// Has the L2 cache fetch the line of an address.
__device__ __forceinline__ void prefetch_l2(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// Stores to global memory, where the compiler does not see that it is no other: it would order loads of shared memory
// behind it.
__device__ __forceinline__ void store_global(void* to, uint4 x) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z),
                 "r"(x.w)
                 : "memory");
}
__device__ __forceinline__ void store_global(float* to, float x) {
    asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
template <class T>
__device__ __forceinline__ void store_global(T* to, T x) {
    static_assert(sizeof(T) == 2, "");
    asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(*reinterpret_cast<const uint16_t*>(&x))
                 : "memory");
}

// Stores an element of 2 or 4 bytes when `needed`, without a branch.
template <class T>
__device__ __forceinline__ void store_if(T* to, T x, bool needed) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "");
    const auto predicate = static_cast<uint32_t>(needed);
    if constexpr (sizeof(T) == 2)
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.global.u16 [%0], %1;\n}" ::"l"(to),
            "h"(*reinterpret_cast<const uint16_t*>(&x)), "r"(predicate)
            : "memory");
    else
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p st.global.u32 [%0], %1;\n}" ::"l"(to),
            "r"(*reinterpret_cast<const uint32_t*>(&x)), "r"(predicate)
            : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// d += a b for 16 x 16 by 16 x 8 tiles of 16-bit elements.
__device__ __forceinline__ void mma_16816(float* d, const uint32_t* a, const uint32_t* b, __half) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_16816(float* d, const uint32_t* a, const uint32_t* b,
                                          __nv_bfloat16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b for 16 x K by K x 8 tiles of float64. Before Hopper the instruction is several of 8 x 8 x 4 on the same
// registers.
template <int K>
__device__ __forceinline__ void mma_by_884(double* d, const double* a, const double* b) {
#pragma unroll
    for (int k = 0; k < K / 4; ++k)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(d[2 * h]), "+d"(d[2 * h + 1])
                : "d"(a[2 * k + h]), "d"(b[k]));
}
__device__ __forceinline__ void mma_16816(double* d, const double* a, const double* b) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, "
        "%9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
    mma_by_884<16>(d, a, b);
#endif
}
__device__ __forceinline__ void mma_1688(double* d, const double* a, const double* b) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
    mma_by_884<8>(d, a, b);
#endif
}

// Waits until `threads` threads have come to the named barrier `id`.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Tiles are computed by `THREADS` threads, a power of two: all of a block, or as many that follow one another while
// others do something else. This is one's number among them; without a sign, since dividing one that has it leads the
// compiler to other code, in which float32 solves take 9% longer.
template <int THREADS>
__device__ __forceinline__ unsigned thread_of() {
    return threadIdx.x % THREADS;
}
// They meet at barrier 0.
template <int THREADS>
__device__ __forceinline__ void block_sync() {
    asm volatile("barrier.sync.aligned 0, %0;" ::"n"(THREADS) : "memory");
}
template <int THREADS>
__device__ __forceinline__ bool block_or(bool value) {
    int any;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.b32 p, %2, 0;\n"
        "barrier.red.or.pred.aligned q, 0, %1, p;\nselp.b32 %0, 1, 0, q;\n}"
        : "=r"(any)
        : "n"(THREADS), "r"(static_cast<int>(value))
        : "memory");
    return any != 0;
}

// Clusters: blocks that run together and read each other's shared memory.
__device__ __forceinline__ void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#endif
}
// The same in two steps, before which writes need not be seen: who waits knows that all have arrived.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
// The address of `rank`'s copy of this block's shared variable.
template <class T>
__device__ __forceinline__ T* cluster_peer(T* p, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
    T* peer;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(peer) : "l"(p), "r"(rank));
    return peer;
#else
    return p;
#endif
}

}  // namespace packedtri::cuda::ptx
