// Sums that the blocks of a cluster have in their shared memory.
#pragma once

#include "ptx.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

// What all `blocks` of the cluster, eight at most, have at this place, added up in the order of their ranks. Reading
// another block's memory takes long, so that all reads are under way at once.
template <class Acc>
__device__ __forceinline__ Acc cluster_sum(Acc* place, int blocks) {
    Acc values[8];
#pragma unroll
    for (int p = 0; p < 8; ++p)
        if (p < blocks) values[p] = *ptx::cluster_peer(place, p);
    Acc sum = values[0];
#pragma unroll
    for (int p = 1; p < 8; ++p)
        if (p < blocks) sum = add(sum, values[p]);
    keep(sum);
    return sum;
}

// A block's shared memory must outlive its peers' reads, which have all been waited for; nobody waits for what they have
// written to global memory.
__device__ __forceinline__ void leave_cluster() {
    ptx::cluster_arrive();
    ptx::cluster_wait();
}

}  // namespace packedtri::cuda
