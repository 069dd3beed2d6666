// Checked launches.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "config.h"

namespace packedtri::cuda {

inline void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    cudaGetLastError();  // An error of ours must not surface again in somebody else's call.
    throw std::runtime_error(std::string("[packedtri] ") + what + ": " + cudaGetErrorString(error));
}

inline void check_reach(std::initializer_list<int64_t> sizes) {
    if (std::max(sizes) > CUDA_REACH)
        throw std::runtime_error("[packedtri] CUDA kernels take " + std::to_string(CUDA_REACH) +
                                 " rows, columns or matrices of a batch at most; got " +
                                 std::to_string(std::max(sizes)));
}

// The grid of so many blocks.
inline dim3 grid_of(int64_t blocks) {
    if (blocks > INT32_MAX)
        throw std::runtime_error("[packedtri] the batch is too large for one launch");
    return dim3(static_cast<unsigned>(blocks));
}

// Allows a kernel's blocks all the dynamic shared memory of the current device. It is one number for each kernel: if
// it followed the sizes of launches, one thread of the host could lower it between what another one sets and launches.
void allow_shared(const void* kernel);
template <class Args>
void allow_shared(void (*kernel)(Args)) {
    allow_shared(reinterpret_cast<const void*>(kernel));
}

// What a launch may ask for beyond its sizes.
template <int MAX>
class LaunchAttributes {
  public:
    // Blocks come in clusters of `size`.
    void cluster(int size) {
        cudaLaunchAttribute& x = next(cudaLaunchAttributeClusterDimension);
        x.val.clusterDim.x = static_cast<unsigned>(size);
        x.val.clusterDim.y = x.val.clusterDim.z = 1;
    }
    // The kernel may start while the one before runs, and waits for it by itself.
    void overlap() {
        next(cudaLaunchAttributeProgrammaticStreamSerialization)
            .val.programmaticStreamSerializationAllowed = 1;
    }
    void give(cudaLaunchConfig_t& config) {
        config.attrs = attributes_;
        config.numAttrs = static_cast<unsigned>(count_);
    }

  private:
    cudaLaunchAttribute& next(cudaLaunchAttributeID id) {
        attributes_[count_].id = id;
        return attributes_[count_++];
    }
    cudaLaunchAttribute attributes_[MAX]{};
    int count_ = 0;
};

// The device that is current, asked once a device.
const Device& current_device();

// How many clusters of `size` blocks the device runs at once, of a kernel that has a multiprocessor for each block.
// They must not straddle the parts that the device is made of, so a few may be left over.
template <class Args>
int clusters_at_once(void (*kernel)(Args), dim3 threads, int shared, int size) {
    if (size <= 2) return current_device().multiprocessors / size;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(size));
    config.blockDim = threads;
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    LaunchAttributes<1> attributes;
    attributes.cluster(size);
    attributes.give(config);
    int count = 0;
    check(cudaOccupancyMaxActiveClusters(&count, kernel, &config), "cannot count clusters");
    return count > 0 ? count : 1;
}

// How many bytes of shared memory so many blocks get that need `bytes`. They may start while the kernel before runs,
// and would crowd the multiprocessors that it has left: with so much, no more than have to find room on one. A KiB of
// each block's is not its own; clusters do not straddle the parts of a device, so some multiprocessors are left over.
inline int keep_apart(int bytes, int64_t blocks, int cluster = 1) {
    const Device& device = current_device();
    if (!device.clusters) return bytes;  // There a kernel starts when the one before has ended.
    const int64_t usable = device.usable(cluster), too_many = ceil_div(blocks, usable) + 1;
    return std::max(bytes, static_cast<int>((device.shared_kib + 1) * 1024 / too_many) - 1008);
}

// Launches a kernel whose blocks may start while the one before ends. It waits for that by itself, before
// it touches memory (ptx::wait_for_dependency). Blocks come in clusters of `cluster`, and have `shared` bytes
// of dynamic shared memory (allow_shared).
template <class Args>
void launch_overlapping(void (*kernel)(Args), dim3 grid, dim3 threads, const Args& args,
                        cudaStream_t stream, const char* failure, int cluster = 1, int shared = 0) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    config.stream = stream;
    LaunchAttributes<2> attributes;
    if (current_device().clusters) attributes.overlap();
    if (cluster > 1) attributes.cluster(cluster);
    attributes.give(config);
    check(cudaLaunchKernelEx(&config, kernel, args), failure);
}

}  // namespace packedtri::cuda
