#include "bindings_solve.h"

#include <cstring>
#include <utility>

#include "arguments.h"
#include "index.h"

namespace packedtri {
namespace {

DType solvable_dtype_of(const Tensor& t, const char* op) {
    const DType dtype = dtype_of(t, op);
    STD_TORCH_CHECK(dtype != DType::f16 && dtype != DType::bf16, "[packedtri::", op,
                    "] has no kernels for 16-bit elements; convert them to float32");
    return dtype;
}

void check_same(const Tensor& a, const Tensor& b, const char* op) {
    STD_TORCH_CHECK(a.scalar_type() == b.scalar_type(), "[packedtri::", op,
                    "] expected both operands to have the same dtype");
    STD_TORCH_CHECK(a.device() == b.device(), "[packedtri::", op,
                    "] expected both operands to be on the same device");
}

void check_right_hand_side(const Tensor& b, bool dense, int64_t n, bool left) {
    if (!dense) return check_packed(b, n, "solve_triangular");
    const int64_t rank = b.dim();
    STD_TORCH_CHECK(rank >= 2 && b.size(left ? rank - 2 : rank - 1) == n,
                    "[packedtri::solve_triangular] expected a right-hand side ",
                    left ? "(..., n, m)" : "(..., m, n)", " with n = ", n, "; got ",
                    to_string(sizes_of(b)));
}

// Fills a contiguous tensor, which shares no memory with the other. Small ones are copied before the dispatcher would have
// been asked to.
void fill(Tensor& to, const Tensor& from, DType dtype) {
    const int64_t bytes = to.numel() * element_size(dtype);
    if (bytes > 65536 || from.is_cuda() || !from.is_contiguous() || from.numel() != to.numel())
        torch::stable::copy_(to, from);
    else std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), static_cast<size_t>(bytes));
}

}  // namespace

Tensor solve_triangular(const Tensor& packed, const Tensor& b, int64_t n, int64_t kind,
                        int64_t b_kind, bool left, bool unit, const Tensor* into,
                        const std::function<void(const Solve&)>& run,
                        const OtherWay<Tensor, Solve>& other) {
    constexpr const char* op = "solve_triangular";
    const Kind k = kind_of(kind, op, "kind"), x_kind = kind_of(b_kind, op, "b_kind");
    const bool dense = x_kind == Kind::Dense;
    STD_TORCH_CHECK(is_triangular(k), "[packedtri::", op,
                    "] expected kind to be 0 (lower) or 1 (upper); got ", kind);
    STD_TORCH_CHECK(dense || x_kind == Kind::Lower, "[packedtri::", op,
                    "] expected b_kind to be 0 (lower) or 3 (dense); got ", b_kind);
    const DType dtype = solvable_dtype_of(packed, op);
    check_same(packed, b, op);
    check_packed(packed, n, op);
    check_right_hand_side(b, dense, n, left);

    const size_t inner = dense ? 2 : 1;
    const Sizes batch = broadcast(batch_of(packed, 1), batch_of(b, inner), op);
    Sizes shape = batch;
    const Sizes own = sizes_of(b);
    shape.insert(shape.end(), own.end() - static_cast<int64_t>(inner), own.end());
    if (into) check_out(*into, shape, "_solve_triangular_out");
    const auto result = [&] { return into ? *into : allocate(b, shape); };
    if (product_of(shape) == 0) return result();
    const Walkable w = walkable(packed, batch, 1, false);
    int64_t count = product_of(batch), m = n, cols = 0;
    if (dense) {
        cols = own.back();
        m = left ? cols : own[own.size() - 2];
        // Rows on the left of one triangle are one tall right-hand side.
        if (!left && w.batch_stride == 0 && m * count <= CUDA_REACH) m *= std::exchange(count, 1);
    }
    Solve p{dtype,
            k,
            left,
            unit,
            n,
            m,
            count,
            w.tensor.const_data_ptr(),
            w.batch_stride,
            x_kind,
            nullptr,
            cols,
            product_of(shape) / count};
    if (other.pays(p)) return other.run(p);
    Tensor x = result();
    if (!into || !same_memory(x, b)) fill(x, b, dtype);
    p.x = x.mutable_data_ptr();
    run(p);
    return x;
}

std::tuple<Tensor, Tensor> cholesky(const Tensor& packed, int64_t n,
                                    const std::function<void(const Factor&)>& run,
                                    const OtherWay<std::tuple<Tensor, Tensor>, Factor>& other) {
    const DType dtype = solvable_dtype_of(packed, "cholesky");
    check_packed(packed, n, "cholesky");
    const Sizes batch = batch_of(packed, 1);
    Factor p{dtype, n, product_of(batch), nullptr, row_start(n), nullptr};
    if (packed.numel() > 0 && other.pays(p)) return other.run(p);
    Tensor factor = allocate(packed, sizes_of(packed));
    Tensor info = allocate(packed, batch, torch::headeronly::ScalarType::Int);
    if (factor.numel() == 0) return {factor, torch::stable::zero_(info)};
    fill(factor, packed, dtype);
    p.packed = factor.mutable_data_ptr();
    p.info = static_cast<int32_t*>(info.mutable_data_ptr());
    run(p);
    return {factor, info};
}

std::tuple<Tensor, Tensor> cholesky_update(const Tensor& packed, const Tensor& x, int64_t n,
                                           bool downdate,
                                           const std::function<void(const FactorUpdate&)>& run) {
    constexpr const char* op = "cholesky_update";
    const DType dtype = solvable_dtype_of(packed, op);
    check_same(packed, x, op);
    check_packed(packed, n, op);
    const int64_t rank = x.dim();
    STD_TORCH_CHECK(rank >= 2 && x.size(rank - 2) == n, "[packedtri::", op,
                    "] expected x of shape (..., n, k) with n = ", n, "; got ",
                    to_string(sizes_of(x)));
    const int64_t k = x.size(rank - 1);
    const Sizes batch = broadcast(batch_of(packed, 1), batch_of(x, 2), op);
    Sizes shape = batch, x_shape = batch;
    shape.push_back(row_start(n));
    x_shape.insert(x_shape.end(), {n, k});
    Tensor factor = allocate(packed, shape);
    Tensor info = allocate(packed, batch, torch::headeronly::ScalarType::Int);
    if (factor.numel() == 0) return {factor, torch::stable::zero_(info)};
    fill(factor, packed, dtype);
    Tensor work = allocate(x, x_shape);
    fill(work, x, dtype);
    run({dtype, downdate, n, k, product_of(batch), factor.mutable_data_ptr(), row_start(n),
         work.mutable_data_ptr(), static_cast<int32_t*>(info.mutable_data_ptr())});
    return {factor, info};
}

Tensor first_zero(const Tensor& packed, int64_t n,
                  const std::function<void(const FirstZero&)>& run) {
    const DType dtype = dtype_of(packed, "first_zero");
    check_packed(packed, n, "first_zero");
    const Sizes batch = batch_of(packed, 1);
    Tensor info = allocate(packed, batch, torch::headeronly::ScalarType::Int);
    if (packed.numel() == 0) return torch::stable::zero_(info);
    const Walkable w = walkable(packed, batch, 1, false);
    run({dtype, n, product_of(batch), w.tensor.const_data_ptr(), w.batch_stride,
         static_cast<int32_t*>(info.mutable_data_ptr())});
    return info;
}

}  // namespace packedtri
