// Shared by the CPU and the CUDA bindings of conversions: packing, unpacking, blocks, and parts of a triangle; and of what
// multiplies parts.
#pragma once

#include "bindings.h"

namespace packedtri {

Tensor pack(const Tensor& dense, int64_t kind, void (*run)(const Conversion&));
Tensor unpack(const Tensor& packed, int64_t n, int64_t kind, void (*run)(const Conversion&));
// Where a block of matrices of order n begins, and its size.
struct Place {
    int64_t n, top, left, rows = 0, cols = 0;
};
// `place.rows` and `place.cols` are those of `dense`.
Tensor pack_block(const Tensor& dense, int64_t kind, Place place,
                  void (*run)(const BlockConversion&));
Tensor unpack_block(const Tensor& packed, int64_t kind, const Place& place,
                    void (*run)(const BlockConversion&));
// `packed` is changed, and the blocks have its batch.
void write_block(const Tensor& packed, const Tensor& dense, int64_t kind, Place place,
                 const std::function<void(const BlockConversion&)>& run);

// Rows [first, last) of lower triangles, one after another, as dense ones of `last` columns with zeros past the
// diagonal; and back, of dense rows from row `first` on. For those who have a part of a triangle.
Tensor unpack_rows(const Tensor& rows, int64_t first, int64_t last,
                   void (*run)(const BlockConversion&));
Tensor pack_rows(const Tensor& dense, int64_t first, void (*run)(const BlockConversion&));

// What such rows add to T x, for vectors x of `last` elements, with T read as `kind` says.
Tensor multiply_rows(const Tensor& rows, const Tensor& x, int64_t first, int64_t last, int64_t kind,
                     const std::function<void(const RowsVector&)>& run);

Tensor diagonal(const Tensor& packed, int64_t n, int64_t below, void (*run)(const Diagonal&));
Tensor embed_diagonal(const Tensor& elements, int64_t n, int64_t below,
                      void (*run)(const Diagonal&));
// As BandScale has it.
struct Band {
    int64_t nearest, farthest;
    double inside, outside;
    bool hermitian;
};
Tensor scale_band(const Tensor& packed, int64_t n, const Band& band, void (*run)(const BandScale&));

}  // namespace packedtri
