// Torch's threads, as the CPU kernels take them, and what runs on them.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "bindings_convert.h"
#include "cpu/kernels.h"

namespace packedtri {

inline void run_on_torch_threads(int count, void (*body)(int, void*), void* context) {
    torch::stable::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t w = begin; w < end; ++w) body(static_cast<int>(w), context);
    });
}

inline cpu::Threads threads() {
    return {static_cast<int>(torch::stable::get_num_threads()), run_on_torch_threads};
}

// The ops of these names for tensors on the CPU.
inline Tensor pack_here(const Tensor& dense, int64_t kind) {
    return pack(dense, kind, [](const Conversion& c) { cpu::pack(c, threads()); });
}
inline Tensor unpack_here(const Tensor& packed, int64_t n, int64_t kind) {
    return unpack(packed, n, kind, [](const Conversion& c) { cpu::unpack(c, threads()); });
}

}  // namespace packedtri
