// Shared by the CPU and the CUDA bindings: checks arguments, allocates results, and turns tensors
// into the plain structs of problem.h. The bindings are the only files that include torch headers.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <functional>
#include <tuple>
#include <utility>

#include "problem.h"

namespace packedtri {

using torch::stable::Tensor;

// Another way to the result R of a problem P than a kernel that `run`s. It is asked for when the
// operands have been checked, and before a result is allocated.
template <class R, class... P>
struct OtherWay {
    std::function<bool(const P&...)> pays = [](const P&...) { return false; };
    std::function<R(const P&...)> run;
};

// What is multiplied, and where a dense result goes, if the caller has a place for it.
struct Operands {
    Tensor a, b;
    int64_t a_kind, b_kind;
    const Tensor* into = nullptr;
};

// What `mm` is told beside its operands, from the one number that `_mm` gets: three bits for each kind and one for tf32.
// Python passes a number in a fraction of the time that five arguments take. The order is that of a packed operand, or
// without one the number of rows.
struct MmArguments {
    int64_t n, a_kind, b_kind, c_kind;
    bool tf32;
};

// A product need not have the operands that `mm` is given: batches that share one matrix become a single product of
// others. So the other way is told which they are.
struct OtherMm : OtherWay<Tensor, Operands, Product> {
    // How many matrices of a batch go that way at once.
    std::function<int64_t(const Product&)> at_once;
};

// Each takes what the op of the same name is given and a function that runs the kernel; `run` is
// not called when the result has no elements.
Tensor mm(const Operands& x, int64_t n, int64_t c_kind, bool tf32,
          const std::function<void(const Product&)>& run, const OtherMm& other,
          const std::function<bool(const ColumnBatch&)>& turns);
MmArguments mm_arguments(const Tensor& a, const Tensor& b, int64_t how);
// How a device multiplies: operands, order, kind of the result, and whether TF32 will do.
using Multiply = Tensor(const Operands& x, int64_t n, int64_t c_kind, bool tf32);
// A product into a contiguous tensor of the result's shape, which `multiply` gets if it begins at a multiple of `alignment`
// bytes and shares no memory with an operand. Otherwise the result is copied there.
void mm_into(const Tensor& out, int64_t alignment, const Tensor& a, const Tensor& b, int64_t how,
             Multiply multiply);
// The ops of a device for products of two operands: `mm`, `_mm` and `_mm_out`.
template <Multiply multiply, int64_t alignment>
struct MmOps {
    static Tensor mm(Tensor a, Tensor b, int64_t n, int64_t a_kind, int64_t b_kind, int64_t c_kind,
                     bool tf32) {
        return multiply({std::move(a), std::move(b), a_kind, b_kind}, n, c_kind, tf32);
    }
    static Tensor quick(Tensor a, Tensor b, int64_t how) {
        const MmArguments x = mm_arguments(a, b, how);
        return multiply({std::move(a), std::move(b), x.a_kind, x.b_kind}, x.n, x.c_kind, x.tf32);
    }
    static void out(Tensor a, Tensor b, int64_t how, Tensor out) {
        mm_into(out, alignment, a, b, how, multiply);
    }
};
// Whether two tensors of one dtype have the same elements, because they are at the same place.
bool same_memory(const Tensor& a, const Tensor& b);
// That other way by dense torch, on unpacked copies. `mend` gets every product, dense, and the part of it that is
// needed, and makes good there what structural zeros, or dense torch itself, have made nan.
struct DenseWay {
    Tensor (*unpack)(const Tensor& packed, int64_t n, int64_t kind);
    Tensor (*pack)(const Tensor& dense, int64_t kind);
    void (*mend)(const Product& p, Kind part);
};
Tensor dense_mm(const Operands& x, int64_t n, const Product& p, const DenseWay& way);
// Two products of triangles, of which the lower triangle is kept. `run` gets both, or `run_one` one of them
// where the other has no elements.
std::tuple<Tensor, Tensor> mm_pair(const Operands& x, const Operands& y, int64_t n, bool tf32,
                                   const std::function<void(const Product&)>& run_one,
                                   const std::function<void(const Product&, const Product&)>& run);
// A product to be explained to people: packed operands have order n, and dense ones m columns, or m rows
// left of a packed one. No one reads its elements.
Product product_like(int dtype, int64_t n, int64_t m, int64_t batch, int a_kind, int b_kind,
                     int c_kind, bool tf32);
}  // namespace packedtri
