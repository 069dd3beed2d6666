#include <array>
#include <mutex>
#include <set>
#include <utility>

#include "launch.h"

namespace packedtri::cuda {
namespace {

__global__ void idle_kernel(int) {}

// How many clusters of four or eight blocks run at once, each block of which takes the shared memory of a multiprocessor.
int clusters_apart(int size, int shared_kib) {
    const int shared = shared_kib * 1024;
    check(cudaFuncSetAttribute(idle_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "cannot allow shared memory");
    // That asks for the current device for pairs, which it must not while that is queried.
    return clusters_at_once(idle_kernel, dim3(32), shared, size);
}

Device query(int index) {
    cudaDeviceProp x{};
    check(cudaGetDeviceProperties(&x, index), "cannot read the properties of the device");
    Device device =
        describe(x.multiProcessorCount, x.major, static_cast<int>(x.sharedMemPerBlockOptin / 1024),
                 static_cast<int64_t>(x.totalGlobalMem));
    int slower = 0;
    check(cudaDeviceGetAttribute(&slower, cudaDevAttrSingleToDoublePrecisionPerfRatio, index),
          "cannot read the rates of the device");
    device.fast_doubles = device.fast_doubles && slower <= 2;
    if (device.clusters) {
        device.fours = clusters_apart(4, device.shared_kib);
        device.eights = clusters_apart(8, device.shared_kib);
    }
    return device;
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

void allow_shared(const void* kernel) {
    // Each thread remembers what it has allowed, for asking the driver takes a microsecond.
    static thread_local std::set<std::pair<const void*, const Device*>> allowed;
    const Device& device = current_device();
    if (allowed.count({kernel, &device})) return;
    cudaFuncAttributes own{};
    check(cudaFuncGetAttributes(&own, kernel), "cannot read the needs of a kernel");
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               device.shared_kib * 1024 - static_cast<int>(own.sharedSizeBytes)),
          "cannot allow shared memory");
    allowed.emplace(kernel, &device);
}

}  // namespace packedtri::cuda
