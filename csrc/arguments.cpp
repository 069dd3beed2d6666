#include "arguments.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <array>

#include "index.h"

namespace packedtri {

using torch::headeronly::ScalarType;

DType dtype_of(const Tensor& t, const char* op) {
    switch (t.scalar_type()) {
        case ScalarType::Half: return DType::f16;
        case ScalarType::BFloat16: return DType::bf16;
        case ScalarType::Float: return DType::f32;
        case ScalarType::Double: return DType::f64;
        case ScalarType::ComplexFloat: return DType::c64;
        case ScalarType::ComplexDouble: return DType::c128;
        default:
            STD_TORCH_CHECK(false, "[packedtri::", op,
                            "] expected float16, bfloat16, float32, float64, complex64 or "
                            "complex128 elements");
    }
    return DType::f32;
}

Kind kind_of(int64_t value, const char* op, const char* name) {
    STD_TORCH_CHECK(value >= 0 && value <= hermitian_kind, "[packedtri::", op, "] expected ", name,
                    " to be 0 (lower), 1 (upper), 2 (symmetric), 3 (dense) or 4 (hermitian); got ",
                    value);
    return value == hermitian_kind ? Kind::Symmetric : static_cast<Kind>(value);
}

bool is_hermitian(int64_t kind, DType dtype) {
    return kind == hermitian_kind && has_complex_elements(dtype);
}

std::string to_string(const Sizes& sizes) {
    std::string s = "(";
    for (size_t d = 0; d < sizes.size(); ++d) s += (d ? ", " : "") + std::to_string(sizes[d]);
    return s + ")";
}

Sizes sizes_of(const Tensor& t) {
    const auto sizes = t.sizes();
    return {sizes.begin(), sizes.end()};
}

Tensor allocate(const Tensor& like, const Sizes& sizes, std::optional<ScalarType> dtype) {
    int32_t type = 0, device = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device));
    if (dtype) {
        type = torch::stable::detail::to<int32_t>(torch::stable::detail::from(*dtype));
    } else {
        STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &type));
    }
    Sizes strides(sizes.size());
    int64_t stride = 1;
    for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(sizes[d], 1))
        strides[d] = stride;
    AtenTensorHandle handle = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(
        aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                                 type, device, like.get_device_index(), &handle));
    return Tensor(handle);
}

int64_t product_of(const Sizes& sizes) {
    int64_t p = 1;
    for (int64_t s : sizes) p *= s;
    return p;
}

static Tensor expand(const Tensor& t, const Sizes& sizes) {
    std::array<StableIValue, 3> stack{
        torch::stable::detail::from(t),
        torch::stable::detail::from(torch::headeronly::IntHeaderOnlyArrayRef(sizes)),
        torch::stable::detail::from(false)};
    STABLE_TORCH_ERROR_CODE_CHECK(
        torch_call_dispatcher("aten::expand", "", stack.data(), TORCH_ABI_VERSION));
    return torch::stable::detail::to<Tensor>(stack[0]);
}

Sizes broadcast(const Sizes& a, const Sizes& b, const char* op) {
    Sizes out(std::max(a.size(), b.size()));
    for (size_t d = 0; d < out.size(); ++d) {
        const int64_t x = d < a.size() ? a[a.size() - 1 - d] : 1;
        const int64_t y = d < b.size() ? b[b.size() - 1 - d] : 1;
        STD_TORCH_CHECK(x == y || x == 1 || y == 1, "[packedtri::", op, "] batch dimensions ",
                        to_string(a), " and ", to_string(b), " do not broadcast");
        out[out.size() - 1 - d] = x == 1 ? y : x;
    }
    return out;
}

using Extents = torch::headeronly::IntHeaderOnlyArrayRef;

// The one stride that steps through a batch in row-major order, if there is one.
static std::optional<int64_t> single_stride(const Extents& sizes, const Extents& strides,
                                            size_t batch_dims) {
    int64_t stride = 0, expected = -1;
    for (size_t d = batch_dims; d-- > 0;) {
        if (sizes[d] == 1) continue;
        if (expected < 0) {
            stride = strides[d];
        } else if (strides[d] != expected) {
            return std::nullopt;
        }
        expected = strides[d] * sizes[d];
    }
    return stride;
}

static bool inner_contiguous(const Extents& sizes, const Extents& strides, size_t inner_dims) {
    const size_t rank = sizes.size();
    const auto unit = [&](size_t d) { return strides[d] == 1 || sizes[d] <= 1; };
    if (inner_dims == 1) return unit(rank - 1);
    return unit(rank - 1) || unit(rank - 2);
}

bool has_batch(const Tensor& t, const Sizes& batch, size_t inner_dims) {
    const auto own = t.sizes();
    return own.size() == batch.size() + inner_dims &&
           std::equal(batch.begin(), batch.end(), own.begin());
}

static Tensor with_batch(const Tensor& t, const Sizes& batch, size_t inner_dims) {
    if (has_batch(t, batch, inner_dims)) return t;
    Sizes target = batch;
    const auto own = t.sizes();
    target.insert(target.end(), own.end() - inner_dims, own.end());
    return expand(t, target);
}

Walkable walkable(const Tensor& t, const Sizes& batch, size_t inner_dims, bool any_strides) {
    Tensor view = with_batch(t, batch, inner_dims);
    const auto sizes = view.sizes();
    std::optional<int64_t> stride;
    if (any_strides || inner_contiguous(sizes, view.strides(), inner_dims))
        stride = single_stride(sizes, view.strides(), batch.size());
    if (!stride) {
        view = torch::stable::contiguous(view);
        stride = single_stride(view.sizes(), view.strides(), batch.size());
    }
    Walkable w{view, *stride};
    if (inner_dims == 2) {
        const auto strides = view.strides();
        w.row_stride = strides[strides.size() - 2];
        w.col_stride = strides[strides.size() - 1];
    }
    return w;
}

void check_packed(const Tensor& t, int64_t n, const char* op) {
    STD_TORCH_CHECK(t.dim() >= 1, "[packedtri::", op,
                    "] expected a packed tensor (..., n(n+1)/2), got a scalar");
    STD_TORCH_CHECK(n >= 0 && n < ORDER_LIMIT && t.size(t.dim() - 1) == row_start(n),
                    "[packedtri::", op, "] a triangle of order ", n,
                    " has n(n+1)/2 = ", row_start(n), " elements; got a packed tensor ",
                    to_string(sizes_of(t)));
}

Sizes batch_of(const Tensor& t, size_t inner_dims) {
    const auto sizes = t.sizes();
    return {sizes.begin(), sizes.end() - inner_dims};
}

namespace {

// From the first byte that a tensor may have an element in to the one behind the last.
std::array<uintptr_t, 2> memory_of(const Tensor& t) {
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    const auto begin = reinterpret_cast<uintptr_t>(t.const_data_ptr());
    return {begin, begin + static_cast<uintptr_t>((last + 1) * t.element_size())};
}

}  // namespace

bool may_overlap(const Tensor& a, const Tensor& b) {
    if (a.numel() == 0 || b.numel() == 0) return false;
    const auto x = memory_of(a), y = memory_of(b);
    return x[0] < y[1] && y[0] < x[1];
}

void check_out(const Tensor& out, const Sizes& shape, const char* op) {
    STD_TORCH_CHECK(sizes_of(out) == shape, "[packedtri::", op, "] expected out of shape ",
                    to_string(shape), "; got ", to_string(sizes_of(out)));
}

void compute_into(const Tensor& out, const Tensor& like, int64_t alignment, bool apart,
                  const char* op, const std::function<Tensor(const Tensor* into)>& compute) {
    STD_TORCH_CHECK(out.is_contiguous() && out.scalar_type() == like.scalar_type() &&
                        out.device() == like.device(),
                    "[packedtri::", op,
                    "] expected a contiguous out of the operands' dtype and on their device");
    const bool aligned = reinterpret_cast<uintptr_t>(out.const_data_ptr()) % alignment == 0;
    const Tensor result = compute(aligned && apart ? &out : nullptr);
    check_out(out, sizes_of(result), op);
    Tensor place = out;
    if (result.const_data_ptr() != out.const_data_ptr()) torch::stable::copy_(place, result);
}

}  // namespace packedtri
