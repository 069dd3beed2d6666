// The CUDA kernels of the ops.
#include <algorithm>

#include "arguments.h"
#include "bindings.h"
#include "cuda/config.h"
#include "cuda/kernels.h"
#include "index.h"
#include "torch_cuda.h"

namespace packedtri {
namespace {

Tensor pack_cuda(Tensor dense, int64_t kind) {
    const torch::stable::accelerator::DeviceGuard guard(dense.get_device_index());
    return pack(dense, kind, [](const Conversion& c) { cuda::pack(c, current_stream()); });
}

Tensor unpack_cuda(Tensor packed, int64_t n, int64_t kind) {
    const torch::stable::accelerator::DeviceGuard guard(packed.get_device_index());
    return unpack(packed, n, kind, [](const Conversion& c) { cuda::unpack(c, current_stream()); });
}

constexpr auto DENSE = static_cast<int64_t>(Kind::Dense);

// A product of a packed n x n matrix with an n x m one, or of an m x n one with it, for choices that
// nothing else decides.
Product shape_of(DType dtype, int64_t n, int64_t m, int64_t batch, int64_t a_kind, int64_t b_kind,
                 int64_t c_kind) {
    alignas(16) static const char a[16] = {}, b[16] = {};
    Product p{};
    p.dtype = dtype;
    const bool rows = b_kind != DENSE;
    p.m = rows ? m : n;
    p.n = rows ? n : m;
    p.k = n;
    p.batch = batch;
    p.a = {a, kind_of(a_kind, "mm", "a_kind"), p.m, n, n, 1, p.m * n};
    p.b = {b, kind_of(b_kind, "mm", "b_kind"), n, p.n, p.n, 1, n * p.n};
    p.c.kind = kind_of(c_kind, "mm", "c_kind");
    return p;
}

Tensor dense_of(const Tensor& x, int64_t n, int64_t kind) {
    return kind == DENSE ? x : unpack_cuda(x, n, kind);
}

// See leaves_to_dense.
bool goes_to_dense(const Tensor& a, const Tensor& b, int64_t n, int64_t a_kind, int64_t b_kind,
                   int64_t c_kind, bool tf32) {
    const Tensor& other = a_kind == DENSE ? a : b;
    const Tensor& packed = a_kind == DENSE ? b : a;
    // What is wrong with the operands the product says.
    if (n <= 0 || other.numel() == 0 || packed.numel() % row_start(n) != 0) return false;
    const bool both = a_kind != DENSE && b_kind != DENSE;
    const int64_t rank = other.dim(), m = both ? n
                                          : rank < 2
                                              ? 1
                                              : other.size(a_kind == DENSE ? rank - 2 : rank - 1);
    const int64_t batch = std::max(packed.numel() / row_start(n), int64_t{1});
    Product p = shape_of(dtype_of(a, "mm"), n, m, batch, a_kind, b_kind, c_kind);
    p.tf32 = tf32;
    return cuda::leaves_to_dense(p);
}

Tensor mm_cuda(Tensor a, Tensor b, int64_t n, int64_t a_kind, int64_t b_kind, int64_t c_kind,
               bool tf32) {
    // Operands on different devices are told apart by the checks that follow.
    const torch::stable::accelerator::DeviceGuard guard((a.is_cuda() ? a : b).get_device_index());
    if (goes_to_dense(a, b, n, a_kind, b_kind, c_kind, tf32)) {
        const Tensor c = torch::stable::matmul(dense_of(a, n, a_kind), dense_of(b, n, b_kind));
        return c_kind == DENSE ? c : pack_cuda(c, c_kind);
    }
    TorchScratch scratch(a);
    return mm(a, b, n, a_kind, b_kind, c_kind, tf32,
              [&](const Product& p) { cuda::mm(p, &scratch, current_stream()); });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY_IMPL(packedtri, CUDA, m) {
    m.impl("mm", TORCH_BOX(&packedtri::mm_cuda));
    m.impl("pack", TORCH_BOX(&packedtri::pack_cuda));
    m.impl("unpack", TORCH_BOX(&packedtri::unpack_cuda));
}

// For `packedtri info`, reached through ctypes: the kernel of an n x n by n x m product in words. The
// text lives until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* packedtri_cuda_explain(
    int dtype, int64_t n, int64_t m, int64_t batch, int a_kind, int b_kind, int c_kind, int tf32,
    int multiprocessors, int major) {
    using namespace packedtri;
    static thread_local std::string text;
    Product p = shape_of(static_cast<DType>(dtype), n, m, batch, a_kind, b_kind, c_kind);
    p.tf32 = tf32 && p.dtype == DType::f32;
    text = cuda::explain(p, {multiprocessors, major == 9});
    return text.c_str();
}

// For tests and tuning, reached through ctypes: see force in cuda/config.h.
extern "C" __attribute__((visibility("default"))) void packedtri_cuda_force(int method, int tile,
                                                                            int split,
                                                                            int split_above,
                                                                            int group) {
    packedtri::cuda::force(method, tile, split, split_above, group);
}
