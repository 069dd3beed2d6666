// torch's current stream and its allocator, and what runs on them, for the CUDA bindings.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>
#include <stdexcept>

#include "arguments.h"
#include "bindings_convert.h"
#include "cuda/kernels.h"

namespace packedtri {

// Of the current device; the caller's guard has made that the device of the tensors.
inline cudaStream_t current_stream() {
    void* stream = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(
        torch::stable::accelerator::getCurrentDeviceIndex(), &stream));
    return static_cast<cudaStream_t>(stream);
}

// Scratch memory from torch's allocator, which gives it to others, on this stream, when a call is over.
class TorchScratch final : public cuda::Scratch {
  public:
    explicit TorchScratch(const Tensor& like) : like_(like) {}
    void* reserve(int64_t bytes) override {
        if (!memory_ || memory_->numel() < bytes)
            memory_ = allocate(like_, {bytes}, torch::headeronly::ScalarType::Byte);
        return memory_->mutable_data_ptr();
    }
    void* reserve_if_free(int64_t bytes) override {
        try {
            return reserve(bytes);
        } catch (const std::runtime_error&) {
            return nullptr;
        }
    }

  private:
    const Tensor& like_;
    std::optional<Tensor> memory_;
};

// Whether dense torch would round elements of this type to TF32 now, in products and in what it makes of them.
bool dense_torch_rounds(DType dtype);

// The ops of these names for tensors on the current device.
inline Tensor pack_here(const Tensor& dense, int64_t kind) {
    return pack(dense, kind, [](const Conversion& c) { cuda::pack(c, current_stream()); });
}
inline Tensor unpack_here(const Tensor& packed, int64_t n, int64_t kind) {
    return unpack(packed, n, kind, [](const Conversion& c) { cuda::unpack(c, current_stream()); });
}

}  // namespace packedtri
