#include <algorithm>
#include <array>
#include <mutex>

#include "launch.h"

namespace packedtri::cuda {
namespace {

Device query(int index) {
    cudaDeviceProp device{};
    check(cudaGetDeviceProperties(&device, index), "cannot read the properties of the device");
    // Only the sm_90a code uses clusters; later chips run the sm_80 code, built from its PTX.
    const bool clusters = device.major == 9;
    const auto shared_kib = static_cast<int>(device.sharedMemPerBlockOptin / 1024);
    // Images of 16-bit operands are as large as these: room for those of an eighth of the memory.
    const int64_t eighth = static_cast<int64_t>(device.totalGlobalMem / 8);
    return {device.multiProcessorCount, clusters, shared_kib, std::max(Device{}.scratch, eighth)};
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
