// Checked launches.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "config.h"

namespace packedtri::cuda {

inline void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    cudaGetLastError();  // An error of ours must not surface again in somebody else's call.
    throw std::runtime_error(std::string("[packedtri] ") + what + ": " + cudaGetErrorString(error));
}

// The device that is current, asked once a device.
const Device& current_device();

}  // namespace packedtri::cuda
