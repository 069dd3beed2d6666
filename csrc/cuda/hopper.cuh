// Thin wrappers of what only Hopper has: barriers in shared memory that count bytes, bulk copies,
// register hand-over between warps, and launches that overlap. Code for other chips compiles them to
// nothing; choose never takes a kernel there that would need them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ptx.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PACKEDTRI_HOPPER 1
#else
#define PACKEDTRI_HOPPER 0
#endif

namespace packedtri::cuda::ptx {

// Whether this lane is the one that is chosen of its warp, all of whose lanes ask; always the same one. The compiler knows
// then that no other is there, and issues a copy by one instruction, not by a loop over the lanes that may be.
__device__ __forceinline__ bool elect() {
    uint32_t chosen = 0;
#if PACKEDTRI_HOPPER
    asm volatile(
        "{\n.reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(chosen));
#endif
    return chosen != 0;
}

// ------------------------------------------------------------------------------ memory barriers
// A barrier is 8 bytes of shared memory, named by its address there. A phase ends when `count` arrivals
// and all expected bytes have come; phases are told apart by their parity.

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int count) {
#if PACKEDTRI_HOPPER
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
#endif
}
// Makes initialised barriers visible to the cluster and to bulk copies.
__device__ __forceinline__ void mbarrier_init_fence() {
#if PACKEDTRI_HOPPER
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// Waits for the end of a phase.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, int parity) {
#if PACKEDTRI_HOPPER
    uint32_t done = 0;
    do {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!done);
#endif
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
#if PACKEDTRI_HOPPER
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}
// Arrives when all that this thread copies with cp_async has landed.
__device__ __forceinline__ void cp_async_arrive(uint32_t barrier) {
#if PACKEDTRI_HOPPER
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
#if PACKEDTRI_HOPPER
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
#endif
}
// Announces bytes without an arrival.
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, uint32_t bytes) {
#if PACKEDTRI_HOPPER
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
#endif
}
// The address that this block's shared variable has in block `rank` of the cluster.
__device__ __forceinline__ uint32_t peer_address(uint32_t address, uint32_t rank) {
    uint32_t there = 0;
#if PACKEDTRI_HOPPER
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
    return there;
}
// Arrives at a barrier of another block.
__device__ __forceinline__ void mbarrier_arrive_peer(uint32_t barrier) {
#if PACKEDTRI_HOPPER
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}

// --------------------------------------------------------------------------------- bulk copies

// Copies `bytes` (a multiple of 16, both sides aligned) to shared memory; they count at `barrier`.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
#if PACKEDTRI_HOPPER
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
#endif
}
// The same to every block of the cluster whose bit is set, and counting at the barrier there.
__device__ __forceinline__ void bulk_load_multicast(uint32_t to, const void* from, uint32_t bytes,
                                                    uint32_t barrier, uint16_t blocks) {
#if PACKEDTRI_HOPPER
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
        : "memory");
#endif
}
// Copies `bytes` (a multiple of 16, both sides aligned) from shared memory, in the background.
__device__ __forceinline__ void bulk_store(void* to, uint32_t from, uint32_t bytes) {
#if PACKEDTRI_HOPPER
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
        "cp.async.bulk.commit_group;" ::"l"(to),
        "r"(from), "r"(bytes)
        : "memory");
#endif
}
// Copies the box at (row, col) of a mapped matrix from shared memory, but for places outside the matrix.
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, uint32_t from, int matrix,
                                             int row, int col) {
#if PACKEDTRI_HOPPER
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];\n"
        "cp.async.bulk.commit_group;" ::"l"(map),
        "r"(col), "r"(row), "r"(matrix), "r"(from)
        : "memory");
#endif
}
// Waits until all but `PENDING` of the copies of this thread have been read, or all have been written.
template <int PENDING = 0>
__device__ __forceinline__ void bulk_store_read() {
#if PACKEDTRI_HOPPER
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
#endif
}
__device__ __forceinline__ void bulk_store_done() {
#if PACKEDTRI_HOPPER
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}
// Has the L2 cache fetch `bytes`, a multiple of 16, from an address that is one.
__device__ __forceinline__ void bulk_prefetch(const void* from, uint32_t bytes) {
#if PACKEDTRI_HOPPER
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}
// Orders this thread's writes to shared memory before later accesses by bulk copies and tensor cores.
__device__ __forceinline__ void bulk_fence() {
#if PACKEDTRI_HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// The same for writes to global memory, by this thread or, once it has seen a word that they released, by
// others.
__device__ __forceinline__ void bulk_fence_global() {
#if PACKEDTRI_HOPPER
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}
// Brings the description of a mapped matrix to where copies look for it.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
#if PACKEDTRI_HOPPER
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}
// Copies the 64 x 64 box at (row, col) of a mapped matrix; places outside the matrix become zero.
__device__ __forceinline__ void tensor_load(uint32_t to, const CUtensorMap* map, int matrix,
                                            int row, int col, uint32_t barrier) {
#if PACKEDTRI_HOPPER
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
        "l"(map), "r"(col), "r"(row), "r"(matrix), "r"(barrier)
        : "memory");
#endif
}
__device__ __forceinline__ void tensor_load_multicast(uint32_t to, const CUtensorMap* map,
                                                      int matrix, int row, int col,
                                                      uint32_t barrier, uint16_t blocks) {
#if PACKEDTRI_HOPPER
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(map), "r"(col), "r"(row), "r"(matrix), "r"(barrier), "h"(blocks)
        : "memory");
#endif
}
// Stores four 8 x 8 matrices of 2-byte elements, as tensor cores leave them to a warp: of each a lane has a pair of row
// lane / 4, and each of eight lanes the address of a row, the first eight those of the first matrix.
__device__ __forceinline__ void store_matrices(uint32_t row, const uint32_t (&pairs)[4]) {
#if PACKEDTRI_HOPPER
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
#endif
}
// Writes 8 or 16 bytes to another block's address; they count at its barrier.
__device__ __forceinline__ void store_peer(uint32_t to, int64_t value, uint32_t barrier) {
#if PACKEDTRI_HOPPER
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
        "l"(value), "r"(barrier)
        : "memory");
#endif
}
__device__ __forceinline__ void store_peer(uint32_t to, const float* x, uint32_t barrier) {
#if PACKEDTRI_HOPPER
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
        "[%5];" ::"r"(to),
        "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(barrier)
        : "memory");
#endif
}

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank = 0;
#if PACKEDTRI_HOPPER
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// ------------------------------------------------------------------------------------- launches

// Lets the next kernel of the stream start, where it was launched to overlap with this one.
__device__ __forceinline__ void launch_dependents() {
#if PACKEDTRI_HOPPER
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until the kernel before has finished and its writes are visible.
__device__ __forceinline__ void wait_for_dependency() {
#if PACKEDTRI_HOPPER
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ------------------------------------------------------------------- words that blocks wait for

// Adds 1 to a word after all that this thread, and those it has met, have written.
__device__ __forceinline__ void release_increment(int* word) {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(word) : "memory");
}
__device__ __forceinline__ int load_relaxed(const int* word) {
    int x;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(word) : "memory");
    return x;
}
// What was written before the word that was read can be read from now on.
__device__ __forceinline__ int load_acquire(const int* word) {
    int x;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(word) : "memory");
    return x;
}
// Both, and what the word was before.
__device__ __forceinline__ int add_acquire_release(int* word, int x) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(x)
                 : "memory");
    return before;
}
// What was written before the words that relaxed loads have seen can be read from now on.
__device__ __forceinline__ void acquire() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// ------------------------------------------------------------------------------------ registers

// Gives registers back to the block, or takes some: all four warps of a warpgroup together.
template <int REGISTERS>
__device__ __forceinline__ void keep_registers() {
#if PACKEDTRI_HOPPER
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}
template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
#if PACKEDTRI_HOPPER
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}

}  // namespace packedtri::cuda::ptx
