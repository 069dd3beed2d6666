#include <array>
#include <mutex>

#include "launch.h"

namespace packedtri::cuda {
namespace {

Device query(int index) {
    int multiprocessors = 0, major = 0, shared = 0;
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, index),
          "cannot read the device's size");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
          "cannot read the device's compute capability");
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
          "cannot read the device's shared memory");
    // Only the sm_90a code uses clusters; later chips run the sm_80 code, built from its PTX.
    return {multiprocessors, major == 9, shared / 1024};
}

}  // namespace

const Device& current_device() {
    constexpr int MAX_DEVICES = 64;
    static std::array<Device, MAX_DEVICES> devices;
    static std::array<std::once_flag, MAX_DEVICES> queried;
    int index = 0;
    check(cudaGetDevice(&index), "cannot find the current device");
    if (index >= MAX_DEVICES) throw std::runtime_error("[packedtri] more than 64 devices");
    std::call_once(queried[index], [&] { devices[index] = query(index); });
    return devices[index];
}

}  // namespace packedtri::cuda
