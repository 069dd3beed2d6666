// The schemas of products, and their CPU kernels.
#include "bindings.h"
#include "bindings_threads.h"
#include "boxed.h"
#include "cpu/kernels.h"

namespace packedtri {
namespace {

Tensor multiply(const Operands& operands, int64_t n, int64_t c_kind, bool tf32) {
    return mm(
        operands, n, c_kind, tf32, [](const Product& p) { cpu::mm(p, threads()); },
        {{[](const Operands&, const Product& p) { return cpu::leaves_to_dense(p); },
          [&](const Operands& x, const Product& p) {
              // Beside one nan torch's bfloat16 may have others, in rows that it is no part of.
              const auto mend = [](const Product& done, Kind) {
                  if (done.dtype == DType::bf16) cpu::mend(done, threads());
              };
              return dense_mm(x, n, p, {unpack_here, pack_here, mend});
          }},
         [](const Product& p) { return cpu::copies(p).at_once(); }},
        cpu::turns);
}

using Ops = MmOps<multiply, 1>;

std::tuple<Tensor, Tensor> mm_pair_cpu(Tensor a, Tensor b, Tensor c, Tensor d, int64_t n,
                                       int64_t a_kind, int64_t b_kind, int64_t c_kind,
                                       int64_t d_kind, bool tf32) {
    const auto run = [](const Product& p) { cpu::mm(p, threads()); };
    return mm_pair({a, b, a_kind, b_kind}, {c, d, c_kind, d_kind}, n, tf32, run,
                   [&](const Product& p, const Product& q) {
                       run(p);
                       run(q);
                   });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY(packedtri, m) {
    m.def(
        "mm(Tensor a, Tensor b, SymInt n, int a_kind, int b_kind, int c_kind, bool tf32=False)"
        " -> Tensor");
    // Its bare form, as PACKEDTRI_IMPL has them of other ops.
    m.def("_mm(Tensor a, Tensor b, int how) -> Tensor");
    m.def("_mm_out(Tensor a, Tensor b, int how, Tensor(a!) out) -> ()");
    m.def(
        "mm_pair(Tensor a, Tensor b, Tensor c, Tensor d, SymInt n, int a_kind, int b_kind, int "
        "c_kind,"
        " int d_kind, bool tf32=False) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(packedtri, CPU, m) {
    m.impl("mm", PACKEDTRI_BOX(Ops::mm));
    m.impl("_mm", PACKEDTRI_BOX(Ops::quick));
    m.impl("_mm_out", PACKEDTRI_BOX(Ops::out));
    m.impl("mm_pair", PACKEDTRI_BOX(mm_pair_cpu));
}

extern "C" __attribute__((visibility("default"))) const char* packedtri_cpu_isa() {
    return packedtri::cpu::isa();
}

// As packedtri_cuda_explain: whether the product is left to dense torch.
extern "C" __attribute__((visibility("default"))) int packedtri_cpu_leaves_to_dense(
    int dtype, int64_t n, int64_t m, int64_t batch, int a_kind, int b_kind, int c_kind) {
    using namespace packedtri;
    return cpu::leaves_to_dense(product_like(dtype, n, m, batch, a_kind, b_kind, c_kind, false));
}
