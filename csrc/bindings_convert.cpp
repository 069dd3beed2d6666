#include "bindings_convert.h"

#include "arguments.h"
#include "index.h"

namespace packedtri {
namespace {

Kind packed_kind(int64_t value, const char* op) {
    const Kind kind = kind_of(value, op, "kind");
    STD_TORCH_CHECK(kind != Kind::Dense, "[packedtri::", op, "] expected kind 0, 1, 2 or 4; got ",
                    value);
    return kind;
}

void check_place(const Place& p, const char* op) {
    const auto fits = [&](int64_t first, int64_t count) {
        return first >= 0 && count >= 0 && first <= p.n - count;
    };
    STD_TORCH_CHECK(p.n < ORDER_LIMIT && fits(p.top, p.rows) && fits(p.left, p.cols),
                    "[packedtri::", op, "] a block of ", p.rows, " x ", p.cols, " at (", p.top,
                    ", ", p.left, ") is not within matrices of order ", p.n);
}

// Gives `place` the size of the block that begins there.
void place_block(Place& place, const Tensor& dense, const char* op) {
    STD_TORCH_CHECK(dense.dim() >= 2, "[packedtri::", op,
                    "] expected blocks (..., rows, cols); got ", to_string(sizes_of(dense)));
    place.rows = dense.size(dense.dim() - 2);
    place.cols = dense.size(dense.dim() - 1);
    check_place(place, op);
}

// A block of packed matrices, from a place on, and its dense side, which lies row by row. Neither is written by
// all that take it.
BlockConversion block_of(DType dtype, Kind k, int64_t kind, const Place& place, int64_t batch,
                         const void* packed, int64_t packed_batch_stride, const void* dense) {
    return {{dtype, k, place.n, batch, const_cast<void*>(packed), packed_batch_stride,
             const_cast<void*>(dense), place.cols, 1, place.rows * place.cols,
             is_hermitian(kind, dtype)},
            place.top,
            place.left,
            place.rows,
            place.cols};
}

// Where the first row would lie in front of rows that begin at row `first`: what names elements by their place in
// the whole triangle finds them from there. Nothing before the rows is read.
const void* triangle_of(const void* rows, int64_t first, DType dtype) {
    return static_cast<const char*>(rows) - row_start(first) * element_size(dtype);
}

// Rows [first, last) of lower triangles, as far as the last of them reaches.
Place rows_of(int64_t first, int64_t last, const char* op) {
    STD_TORCH_CHECK(first >= 0 && first <= last && last < ORDER_LIMIT, "[packedtri::", op,
                    "] expected rows from first to last; got ", first, " and ", last);
    return {last, first, 0, last - first, last};
}

void check_rows(const Tensor& rows, const Place& place, const char* op) {
    const int64_t count = row_start(place.n) - row_start(place.top);
    STD_TORCH_CHECK(rows.dim() >= 1 && rows.size(rows.dim() - 1) == count, "[packedtri::", op,
                    "] expected rows (..., ", count, "); got ", to_string(sizes_of(rows)));
}

void check_below(int64_t n, int64_t below, const char* op) {
    STD_TORCH_CHECK(n < ORDER_LIMIT && below >= 0 && below <= n, "[packedtri::", op,
                    "] expected a diagonal from 0 to n = ", n, " below the main one; got ", below);
}

}  // namespace

Tensor pack(const Tensor& dense, int64_t kind, void (*run)(const Conversion&)) {
    const Kind k = packed_kind(kind, "pack");
    const DType dtype = dtype_of(dense, "pack");
    const int64_t rank = dense.dim();
    STD_TORCH_CHECK(rank >= 2 && dense.size(rank - 2) == dense.size(rank - 1),
                    "[packedtri::pack] expected square matrices (..., n, n); got ",
                    to_string(sizes_of(dense)));
    const int64_t n = dense.size(rank - 1);
    const Sizes batch = batch_of(dense, 2);
    Sizes shape = batch;
    shape.push_back(row_start(n));
    Tensor packed = allocate(dense, shape);
    if (packed.numel() == 0) return packed;
    const Walkable w = walkable(dense, batch, 2, true);
    run({dtype, k, n, product_of(batch), packed.mutable_data_ptr(), row_start(n),
         const_cast<void*>(w.tensor.const_data_ptr()), w.row_stride, w.col_stride, w.batch_stride,
         is_hermitian(kind, dtype)});
    return packed;
}

Tensor unpack(const Tensor& packed, int64_t n, int64_t kind, void (*run)(const Conversion&)) {
    const Kind k = packed_kind(kind, "unpack");
    const DType dtype = dtype_of(packed, "unpack");
    check_packed(packed, n, "unpack");
    const Sizes batch = batch_of(packed, 1);
    Sizes shape = batch;
    shape.insert(shape.end(), {n, n});
    Tensor dense = allocate(packed, shape);
    if (dense.numel() == 0) return dense;
    const Walkable w = walkable(packed, batch, 1, false);
    run({dtype, k, n, product_of(batch), const_cast<void*>(w.tensor.const_data_ptr()),
         w.batch_stride, dense.mutable_data_ptr(), n, 1, n * n, is_hermitian(kind, dtype)});
    return dense;
}

Tensor pack_block(const Tensor& dense, int64_t kind, Place place,
                  void (*run)(const BlockConversion&)) {
    const Kind k = packed_kind(kind, "pack_block");
    const DType dtype = dtype_of(dense, "pack_block");
    place_block(place, dense, "pack_block");
    const Sizes batch = batch_of(dense, 2);
    Sizes shape = batch;
    shape.push_back(row_start(place.n));
    Tensor packed = allocate(dense, shape);
    if (packed.numel() == 0) return packed;
    if (dense.numel() == 0) return torch::stable::zero_(packed);
    const Tensor rows = torch::stable::contiguous(dense);
    run(block_of(dtype, k, kind, place, product_of(batch), packed.mutable_data_ptr(),
                 row_start(place.n), rows.const_data_ptr()));
    return packed;
}

Tensor unpack_block(const Tensor& packed, int64_t kind, const Place& place,
                    void (*run)(const BlockConversion&)) {
    const Kind k = packed_kind(kind, "unpack_block");
    const DType dtype = dtype_of(packed, "unpack_block");
    check_packed(packed, place.n, "unpack_block");
    check_place(place, "unpack_block");
    const Sizes batch = batch_of(packed, 1);
    Sizes shape = batch;
    shape.insert(shape.end(), {place.rows, place.cols});
    Tensor dense = allocate(packed, shape);
    if (dense.numel() == 0) return dense;
    const Walkable w = walkable(packed, batch, 1, false);
    run(block_of(dtype, k, kind, place, product_of(batch), w.tensor.const_data_ptr(),
                 w.batch_stride, dense.mutable_data_ptr()));
    return dense;
}

void write_block(const Tensor& packed, const Tensor& dense, int64_t kind, Place place,
                 const std::function<void(const BlockConversion&)>& run) {
    constexpr const char* op = "write_block_";
    const Kind k = packed_kind(kind, op);
    const DType dtype = dtype_of(packed, op);
    STD_TORCH_CHECK(
        dense.scalar_type() == packed.scalar_type() && dense.device() == packed.device(),
        "[packedtri::", op, "] expected both tensors to have one dtype and device");
    check_packed(packed, place.n, op);
    place_block(place, dense, op);
    const Sizes batch = batch_of(packed, 1);
    STD_TORCH_CHECK(packed.is_contiguous() && batch_of(dense, 2) == batch, "[packedtri::", op,
                    "] expected contiguous triangles ", to_string(batch),
                    " and as many blocks; got blocks ", to_string(sizes_of(dense)));
    if (dense.numel() == 0) return;
    const Tensor rows = torch::stable::contiguous(dense);
    run(block_of(dtype, k, kind, place, product_of(batch), packed.mutable_data_ptr(),
                 row_start(place.n), rows.const_data_ptr()));
}

Tensor unpack_rows(const Tensor& rows, int64_t first, int64_t last,
                   void (*run)(const BlockConversion&)) {
    constexpr const char* op = "unpack_rows";
    const DType dtype = dtype_of(rows, op);
    const Place place = rows_of(first, last, op);
    check_rows(rows, place, op);
    const Sizes batch = batch_of(rows, 1);
    Sizes shape = batch;
    shape.insert(shape.end(), {place.rows, place.cols});
    Tensor dense = allocate(rows, shape);
    if (dense.numel() == 0) return dense;
    const Walkable w = walkable(rows, batch, 1, false);
    const void* triangle = triangle_of(w.tensor.const_data_ptr(), first, dtype);
    run(block_of(dtype, Kind::Lower, 0, place, product_of(batch), triangle, w.batch_stride,
                 dense.mutable_data_ptr()));
    return dense;
}

Tensor pack_rows(const Tensor& dense, int64_t first, void (*run)(const BlockConversion&)) {
    constexpr const char* op = "pack_rows";
    const DType dtype = dtype_of(dense, op);
    const int64_t rank = dense.dim();
    STD_TORCH_CHECK(rank >= 2 && dense.size(rank - 1) == first + dense.size(rank - 2),
                    "[packedtri::", op,
                    "] expected rows (..., k, first + k) from row first = ", first, " on; got ",
                    to_string(sizes_of(dense)));
    const Place place = rows_of(first, dense.size(rank - 1), op);
    const int64_t count = row_start(place.n) - row_start(first);
    const Sizes batch = batch_of(dense, 2);
    Sizes shape = batch;
    shape.push_back(count);
    Tensor rows = allocate(dense, shape);
    if (rows.numel() == 0) return rows;
    const Tensor lines = torch::stable::contiguous(dense);
    run(block_of(dtype, Kind::Lower, 0, place, product_of(batch),
                 triangle_of(rows.mutable_data_ptr(), first, dtype), count,
                 lines.const_data_ptr()));
    return rows;
}

Tensor multiply_rows(const Tensor& rows, const Tensor& x, int64_t first, int64_t last, int64_t kind,
                     const std::function<void(const RowsVector&)>& run) {
    constexpr const char* op = "multiply_rows";
    const Kind k = packed_kind(kind, op);
    const DType dtype = dtype_of(rows, op);
    STD_TORCH_CHECK(x.scalar_type() == rows.scalar_type() && x.device() == rows.device(),
                    "[packedtri::", op, "] expected both tensors to have one dtype and device");
    check_rows(rows, rows_of(first, last, op), op);
    STD_TORCH_CHECK(x.dim() >= 1 && x.size(x.dim() - 1) == last, "[packedtri::", op,
                    "] expected vectors (..., ", last, "); got ", to_string(sizes_of(x)));
    const Sizes batch = broadcast(batch_of(rows, 1), batch_of(x, 1), op);
    Sizes shape = batch;
    shape.push_back(last);
    Tensor y = allocate(rows, shape);
    if (y.numel() == 0) return y;
    if (first == last) return torch::stable::zero_(y);
    const Walkable w = walkable(rows, batch, 1, false), v = walkable(x, batch, 1, false);
    run({dtype, k, first, last, product_of(batch),
         triangle_of(w.tensor.const_data_ptr(), first, dtype), w.batch_stride,
         v.tensor.const_data_ptr(), v.batch_stride, y.mutable_data_ptr(),
         is_hermitian(kind, dtype)});
    return y;
}

Tensor diagonal(const Tensor& packed, int64_t n, int64_t below, void (*run)(const Diagonal&)) {
    const DType dtype = dtype_of(packed, "diagonal");
    check_packed(packed, n, "diagonal");
    check_below(n, below, "diagonal");
    const Sizes batch = batch_of(packed, 1);
    Sizes shape = batch;
    shape.push_back(n - below);
    Tensor elements = allocate(packed, shape);
    if (elements.numel() == 0) return elements;
    const Walkable w = walkable(packed, batch, 1, false);
    run({dtype, n, product_of(batch), below, const_cast<void*>(w.tensor.const_data_ptr()),
         w.batch_stride, elements.mutable_data_ptr()});
    return elements;
}

Tensor embed_diagonal(const Tensor& elements, int64_t n, int64_t below,
                      void (*run)(const Diagonal&)) {
    constexpr const char* op = "embed_diagonal";
    const DType dtype = dtype_of(elements, op);
    check_below(n, below, op);
    STD_TORCH_CHECK(elements.dim() >= 1 && elements.size(elements.dim() - 1) == n - below,
                    "[packedtri::", op, "] expected elements (..., ", n - below, "); got ",
                    to_string(sizes_of(elements)));
    const Sizes batch = batch_of(elements, 1);
    Sizes shape = batch;
    shape.push_back(row_start(n));
    Tensor packed = allocate(elements, shape);
    if (packed.numel() == 0) return packed;
    if (elements.numel() == 0) return torch::stable::zero_(packed);
    const Tensor lines = torch::stable::contiguous(elements);
    run({dtype, n, product_of(batch), below, packed.mutable_data_ptr(), row_start(n),
         const_cast<void*>(lines.const_data_ptr())});
    return packed;
}

Tensor scale_band(const Tensor& packed, int64_t n, const Band& band,
                  void (*run)(const BandScale&)) {
    const DType dtype = dtype_of(packed, "scale_band");
    check_packed(packed, n, "scale_band");
    Tensor scaled = allocate(packed, sizes_of(packed));
    if (scaled.numel() == 0) return scaled;
    const Sizes batch = batch_of(packed, 1);
    const Walkable w = walkable(packed, batch, 1, false);
    run({dtype, n, product_of(batch), w.tensor.const_data_ptr(), w.batch_stride,
         scaled.mutable_data_ptr(), band.nearest, band.farthest, band.inside, band.outside,
         band.hermitian && has_complex_elements(dtype)});
    return scaled;
}

}  // namespace packedtri
