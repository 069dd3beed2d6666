// The CUDA kernels of conversions.
#include "bindings_convert.h"
#include "boxed.h"
#include "cuda/kernels.h"
#include "torch_cuda.h"

namespace packedtri {
namespace {

using Guard = torch::stable::accelerator::DeviceGuard;

Tensor pack_cuda(Tensor dense, int64_t kind) {
    const Guard guard(dense.get_device_index());
    return pack_here(dense, kind);
}

Tensor unpack_cuda(Tensor packed, int64_t n, int64_t kind) {
    const Guard guard(packed.get_device_index());
    return unpack_here(packed, n, kind);
}

Tensor pack_block_cuda(Tensor dense, int64_t n, int64_t kind, int64_t top, int64_t left) {
    const Guard guard(dense.get_device_index());
    return pack_block(dense, kind, {n, top, left},
                      [](const BlockConversion& c) { cuda::pack_block(c, current_stream()); });
}

Tensor unpack_block_cuda(Tensor packed, int64_t n, int64_t kind, int64_t top, int64_t left,
                         int64_t rows, int64_t cols) {
    const Guard guard(packed.get_device_index());
    return unpack_block(packed, kind, {n, top, left, rows, cols},
                        [](const BlockConversion& c) { cuda::unpack_block(c, current_stream()); });
}

void write_block_cuda(Tensor packed, Tensor dense, int64_t n, int64_t kind, int64_t top,
                      int64_t left) {
    // Tensors on different devices are told apart by the checks that follow.
    const Guard guard((packed.is_cuda() ? packed : dense).get_device_index());
    write_block(packed, dense, kind, {n, top, left},
                [](const BlockConversion& c) { cuda::write_block(c, current_stream()); });
}

Tensor unpack_rows_cuda(Tensor rows, int64_t first, int64_t last) {
    const Guard guard(rows.get_device_index());
    return unpack_rows(rows, first, last,
                       [](const BlockConversion& c) { cuda::unpack_block(c, current_stream()); });
}

Tensor pack_rows_cuda(Tensor dense, int64_t first) {
    const Guard guard(dense.get_device_index());
    return pack_rows(dense, first,
                     [](const BlockConversion& c) { cuda::write_block(c, current_stream()); });
}

Tensor multiply_rows_cuda(Tensor rows, Tensor x, int64_t first, int64_t last, int64_t kind) {
    // Tensors on different devices are told apart by the checks that follow.
    const Guard guard((rows.is_cuda() ? rows : x).get_device_index());
    TorchScratch scratch(rows);
    return multiply_rows(rows, x, first, last, kind, [&](const RowsVector& p) {
        cuda::multiply_rows(p, &scratch, current_stream());
    });
}

Tensor diagonal_cuda(Tensor packed, int64_t n, int64_t below) {
    const Guard guard(packed.get_device_index());
    return diagonal(packed, n, below,
                    [](const Diagonal& d) { cuda::diagonal(d, current_stream()); });
}

Tensor embed_diagonal_cuda(Tensor elements, int64_t n, int64_t below) {
    const Guard guard(elements.get_device_index());
    return embed_diagonal(elements, n, below,
                          [](const Diagonal& d) { cuda::embed_diagonal(d, current_stream()); });
}

Tensor scale_band_cuda(Tensor packed, int64_t n, int64_t nearest, int64_t farthest, double inside,
                       double outside, bool hermitian) {
    const Guard guard(packed.get_device_index());
    return scale_band(packed, n, {nearest, farthest, inside, outside, hermitian},
                      [](const BandScale& p) { cuda::scale_band(p, current_stream()); });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY_IMPL(packedtri, CUDA, m) {
    PACKEDTRI_IMPL(m, "pack", pack_cuda);
    PACKEDTRI_IMPL(m, "unpack", unpack_cuda);
    m.impl("pack_block", PACKEDTRI_BOX(pack_block_cuda));
    PACKEDTRI_IMPL(m, "unpack_block", unpack_block_cuda);
    m.impl("write_block_", PACKEDTRI_BOX(write_block_cuda));
    m.impl("unpack_rows", PACKEDTRI_BOX(unpack_rows_cuda));
    m.impl("pack_rows", PACKEDTRI_BOX(pack_rows_cuda));
    m.impl("multiply_rows", PACKEDTRI_BOX(multiply_rows_cuda));
    PACKEDTRI_IMPL(m, "diagonal", diagonal_cuda);
    PACKEDTRI_IMPL(m, "embed_diagonal", embed_diagonal_cuda);
    PACKEDTRI_IMPL(m, "scale_band", scale_band_cuda);
}
