// Checking arguments and laying tensors out for the kernels: what the bindings of all ops share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings.h"

namespace packedtri {

using Sizes = std::vector<int64_t>;

// `op` names the op in the messages of errors.
DType dtype_of(const Tensor& t, const char* op);
// The number that says hermitian is read as Symmetric with a flag, which real elements do not need.
constexpr int64_t hermitian_kind = 4;
Kind kind_of(int64_t value, const char* op, const char* name);
bool is_hermitian(int64_t kind, DType dtype);
// Packed matrices have orders below this.
constexpr int64_t ORDER_LIMIT = int64_t{1} << 31;
void check_packed(const Tensor& t, int64_t n, const char* op);

std::string to_string(const Sizes& sizes);
Sizes sizes_of(const Tensor& t);
int64_t product_of(const Sizes& sizes);
Sizes batch_of(const Tensor& t, size_t inner_dims);
// An uninitialized contiguous tensor beside `like`, of its dtype if none is given. torch::stable::new_empty does the
// same, but finds its op by name in each call, which takes longer than a small product.
Tensor allocate(const Tensor& like, const Sizes& sizes,
                std::optional<torch::headeronly::ScalarType> dtype = std::nullopt);
Sizes broadcast(const Sizes& a, const Sizes& b, const char* op);
// Whether `batch` is the batch that a tensor has itself, before its `inner_dims`.
bool has_batch(const Tensor& t, const Sizes& batch, size_t inner_dims);
// Whether two tensors may have memory in common.
bool may_overlap(const Tensor& a, const Tensor& b);

// Raises where `out` has not the shape of a result.
void check_out(const Tensor& out, const Sizes& shape, const char* op);
// Computes a result in `out`, contiguous, with the dtype and device of `like`. `compute` gets it where it begins at a
// multiple of `alignment` bytes and is `apart` from what is read meanwhile; a result that is elsewhere is copied there.
void compute_into(const Tensor& out, const Tensor& like, int64_t alignment, bool apart,
                  const char* op, const std::function<Tensor(const Tensor* into)>& compute);

// A tensor whose matrices the kernels can walk: batch expanded to `batch` with a single stride, and
// the inner dimensions laid out as they need. Copies only where no view will do.
struct Walkable {
    Tensor tensor;
    int64_t batch_stride;
    int64_t row_stride = 0, col_stride = 0;
};

Walkable walkable(const Tensor& t, const Sizes& batch, size_t inner_dims, bool any_strides);

}  // namespace packedtri
