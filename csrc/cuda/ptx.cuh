// Thin wrappers of the PTX instructions that CUDA C++ does not offer.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace packedtri::cuda::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// x, of which the compiler knows nothing.
__device__ __forceinline__ int hidden(int x) {
    asm volatile("" : "+r"(x));
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

// d += a b for 16 x 16 by 16 x 8 tiles of float64. Before Hopper the instruction is eight of
// 8 x 8 x 4 on the same registers.
__device__ __forceinline__ void mma_16816(double* d, const double* a, const double* b) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, "
        "%9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(d[2 * h]), "+d"(d[2 * h + 1])
                : "d"(a[2 * k + h]), "d"(b[k]));
#endif
}

// Named barriers: `sync` waits until `threads` threads have come to barrier `id`, `arrive` only
// comes.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Barriers in shared memory, each for a fixed number of arrivals, over and over: phase 0, 1, 0 ...
__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}
// Makes new barriers known to the copy engine and to other blocks of the cluster.
__device__ __forceinline__ void mbarrier_init_fence() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(
                     shared_address(barrier))
                 : "memory");
}
__device__ __forceinline__ bool mbarrier_passed(uint64_t* barrier, int phase) {
    uint32_t passed;
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
#else
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
#endif
        : "=r"(passed)
        : "r"(shared_address(barrier)), "r"(phase)
        : "memory");
    return passed;
}
// Waits until a phase is over. Compiled with PACKEDTRI_BOUNDED_WAITS it goes on after some seconds,
// so that a mistake ends in wrong results and not in a kernel that never ends.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, int phase) {
#ifdef PACKEDTRI_BOUNDED_WAITS
    for (int tries = 0; tries < 1 << 20; ++tries)
        if (mbarrier_passed(barrier, phase)) return;
#else
    while (!mbarrier_passed(barrier, phase)) {
    }
#endif
}

// Copies `bytes` (a multiple of 16, both ends aligned to 16) to shared memory by the copy engine of
// Hopper; `barrier` passes when its arrivals and all announced bytes have come.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes,
                                          uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%3], %2;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
#endif
}
// Orders this thread's writes to shared memory before later ones by the copy engine.
__device__ __forceinline__ void bulk_copy_fence() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Gives registers back to the block, or takes some: all four warps of a warpgroup together.
template <int REGISTERS>
__device__ __forceinline__ void keep_registers() {
#if __CUDA_ARCH__ >= 900
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}
template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
#if __CUDA_ARCH__ >= 900
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}

// Clusters: blocks that run together and read each other's shared memory.
__device__ __forceinline__ void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#endif
}
// The address at which `rank`'s copy of this block's shared variable is read.
template <class T>
__device__ __forceinline__ const T* cluster_peer(const T* p, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
    const T* peer;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(peer) : "l"(p), "r"(rank));
    return peer;
#else
    return p;
#endif
}

}  // namespace packedtri::cuda::ptx
