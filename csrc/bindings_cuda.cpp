// The CUDA kernels of products.
#include <atomic>

#include "arguments.h"
#include "bindings.h"
#include "boxed.h"
#include "cuda/config.h"
#include "cuda/kernels.h"
#include "cuda/launch.h"
#include "torch_cuda.h"

namespace packedtri {
namespace {

Tensor multiply(const Operands& operands, int64_t n, int64_t c_kind, bool tf32);

// What leaves_to_dense says.
Tensor unpacked_mm(const Operands& x, int64_t n, bool tf32, const Product& p) {
    if (!cuda::goes_on_unpacked(p, cuda::current_device()))
        return dense_mm(x, n, p, {unpack_here, pack_here, [](const Product& done, Kind part) {
                                      if (has_triangle(done))
                                          cuda::mend(done, part, current_stream());
                                  }});
    constexpr auto dense = static_cast<int64_t>(Kind::Dense);
    const Product rest = cuda::with_unpacked(p);
    const bool left = p.a.kind == Kind::Symmetric, right = p.b.kind == Kind::Symmetric;
    const bool same = left && right && x.a_kind == x.b_kind && same_memory(x.a, x.b);
    const Tensor a = left ? unpack_here(x.a, n, x.a_kind) : x.a;
    Tensor b = !right ? x.b : same ? a : unpack_here(x.b, n, x.b_kind);
    if (right && rest.b.col_stride != 1) b = torch::stable::transpose(b, -2, -1);
    return multiply({a, b, left ? dense : x.a_kind, right ? dense : x.b_kind, x.into}, n,
                    static_cast<int64_t>(p.c.kind), tf32);
}

Tensor multiply(const Operands& operands, int64_t n, int64_t c_kind, bool tf32) {
    const Tensor &a = operands.a, &b = operands.b;
    // Operands on different devices are told apart by the checks that follow.
    const torch::stable::accelerator::DeviceGuard guard((a.is_cuda() ? a : b).get_device_index());
    TorchScratch scratch(a);
    return mm(
        operands, n, c_kind, tf32,
        [&](const Product& p) { cuda::mm(p, &scratch, current_stream()); },
        {{[&](const Operands&, const Product& p) {
              // Dense torch may round what must not be.
              return cuda::leaves_to_dense(p, cuda::current_device()) &&
                     (tf32 || cuda::is_mv(p) || !dense_torch_rounds(p.dtype));
          },
          [&](const Operands& x, const Product& p) { return unpacked_mm(x, n, tf32, p); }},
         [](const Product& p) { return cuda::copies(p).at_once(); }},
        [](const ColumnBatch& x) { return cuda::turns(x, cuda::current_device()); });
}

// Results begin as new ones do: kernels may store words, or ask what they have stored.
using Ops = MmOps<multiply, 16>;

std::tuple<Tensor, Tensor> mm_pair_cuda(Tensor a, Tensor b, Tensor c, Tensor d, int64_t n,
                                        int64_t a_kind, int64_t b_kind, int64_t c_kind,
                                        int64_t d_kind, bool tf32) {
    // Operands on different devices are told apart by the checks that follow.
    const Tensor& on_device = a.is_cuda() ? a : b.is_cuda() ? b : c.is_cuda() ? c : d;
    const torch::stable::accelerator::DeviceGuard guard(on_device.get_device_index());
    TorchScratch scratch(a);
    return mm_pair(
        {a, b, a_kind, b_kind}, {c, d, c_kind, d_kind}, n, tf32,
        [&](const Product& p) { cuda::mm(p, &scratch, current_stream()); },
        [&](const Product& p, const Product& q) {
            cuda::mm_pair(p, q, &scratch, current_stream());
        });
}

// Set by Python, since torch tells it nowhere else. Until then: it might.
bool it_might() { return true; }
std::atomic<bool (*)()> rounds_now{it_might};

}  // namespace

bool dense_torch_rounds(DType dtype) {
    return (dtype == DType::f32 || dtype == DType::c64) && rounds_now.load()();
}

}  // namespace packedtri

STABLE_TORCH_LIBRARY_IMPL(packedtri, CUDA, m) {
    m.impl("mm", PACKEDTRI_BOX(Ops::mm));
    m.impl("_mm", PACKEDTRI_BOX(Ops::quick));
    m.impl("_mm_out", PACKEDTRI_BOX(Ops::out));
    m.impl("mm_pair", PACKEDTRI_BOX(mm_pair_cuda));
}

// For `packedtri info`, reached through ctypes: the kernel of product_like on the current device in words. The text lives
// until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* packedtri_cuda_explain(
    int dtype, int64_t n, int64_t m, int64_t batch, int a_kind, int b_kind, int c_kind, int tf32) {
    using namespace packedtri;
    static thread_local std::string text;
    text = cuda::explain(product_like(dtype, n, m, batch, a_kind, b_kind, c_kind, tf32),
                         cuda::current_device());
#ifdef PACKEDTRI_NOT_OPTIMIZED
    text += ", compiled without optimization";
#endif
    return text.c_str();
}

// For tests and tuning, reached through ctypes: see force in cuda/config.h.
extern "C" __attribute__((visibility("default"))) void packedtri_cuda_force(int method, int tile,
                                                                            int split,
                                                                            int split_above,
                                                                            int group) {
    packedtri::cuda::force(method, tile, split, split_above, group);
}

// How to learn whether torch rounds float32 to TF32 in products now. It is asked on any thread.
extern "C" __attribute__((visibility("default"))) void packedtri_cuda_ask_rounding(
    bool (*rounds)()) {
    packedtri::rounds_now = rounds;
}
