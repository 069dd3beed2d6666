// The CUDA kernels of the ops.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include "bindings.h"
#include "cuda/config.h"
#include "cuda/kernels.h"

namespace packedtri {
namespace {

// The caller's guard has made the tensors' device current.
cudaStream_t current_stream() {
    void* stream = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(
        torch::stable::accelerator::getCurrentDeviceIndex(), &stream));
    return static_cast<cudaStream_t>(stream);
}

Tensor mm_cuda(Tensor a, Tensor b, int64_t n, int64_t a_kind, int64_t b_kind, int64_t c_kind) {
    const torch::stable::accelerator::DeviceGuard guard(a.get_device_index());
    return mm(a, b, n, a_kind, b_kind, c_kind,
              [](const Product& p) { cuda::mm(p, current_stream()); });
}

Tensor pack_cuda(Tensor dense, int64_t kind) {
    const torch::stable::accelerator::DeviceGuard guard(dense.get_device_index());
    return pack(dense, kind, [](const Conversion& c) { cuda::pack(c, current_stream()); });
}

Tensor unpack_cuda(Tensor packed, int64_t n, int64_t kind) {
    const torch::stable::accelerator::DeviceGuard guard(packed.get_device_index());
    return unpack(packed, n, kind, [](const Conversion& c) { cuda::unpack(c, current_stream()); });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY_IMPL(packedtri, CUDA, m) {
    m.impl("mm", TORCH_BOX(&packedtri::mm_cuda));
    m.impl("pack", TORCH_BOX(&packedtri::pack_cuda));
    m.impl("unpack", TORCH_BOX(&packedtri::unpack_cuda));
}

// For tests and tuning, reached through ctypes: see force in cuda/config.h.
extern "C" __attribute__((visibility("default"))) void packedtri_cuda_force(int tile, int split,
                                                                            int group) {
    packedtri::cuda::force(tile, split, group);
}
