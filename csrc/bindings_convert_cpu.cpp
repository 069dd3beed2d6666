// The schemas of conversions, and their CPU kernels.
#include "bindings_convert.h"
#include "bindings_threads.h"
#include "boxed.h"
#include "cpu/kernels.h"

namespace packedtri {
namespace {

Tensor pack_cpu(Tensor dense, int64_t kind) { return pack_here(dense, kind); }

Tensor unpack_cpu(Tensor packed, int64_t n, int64_t kind) { return unpack_here(packed, n, kind); }

Tensor pack_block_cpu(Tensor dense, int64_t n, int64_t kind, int64_t top, int64_t left) {
    return pack_block(dense, kind, {n, top, left},
                      [](const BlockConversion& c) { cpu::pack_block(c, threads()); });
}

Tensor unpack_block_cpu(Tensor packed, int64_t n, int64_t kind, int64_t top, int64_t left,
                        int64_t rows, int64_t cols) {
    return unpack_block(packed, kind, {n, top, left, rows, cols},
                        [](const BlockConversion& c) { cpu::unpack_block(c, threads()); });
}

void write_block_cpu(Tensor packed, Tensor dense, int64_t n, int64_t kind, int64_t top,
                     int64_t left) {
    write_block(packed, dense, kind, {n, top, left},
                [](const BlockConversion& c) { cpu::write_block(c, threads()); });
}

Tensor unpack_rows_cpu(Tensor rows, int64_t first, int64_t last) {
    return unpack_rows(rows, first, last,
                       [](const BlockConversion& c) { cpu::unpack_block(c, threads()); });
}

Tensor pack_rows_cpu(Tensor dense, int64_t first) {
    return pack_rows(dense, first,
                     [](const BlockConversion& c) { cpu::write_block(c, threads()); });
}

Tensor multiply_rows_cpu(Tensor rows, Tensor x, int64_t first, int64_t last, int64_t kind) {
    return multiply_rows(rows, x, first, last, kind,
                         [](const RowsVector& p) { cpu::multiply_rows(p, threads()); });
}

Tensor diagonal_cpu(Tensor packed, int64_t n, int64_t below) {
    return diagonal(packed, n, below, [](const Diagonal& d) { cpu::diagonal(d, threads()); });
}

Tensor embed_diagonal_cpu(Tensor elements, int64_t n, int64_t below) {
    return embed_diagonal(elements, n, below,
                          [](const Diagonal& d) { cpu::embed_diagonal(d, threads()); });
}

Tensor scale_band_cpu(Tensor packed, int64_t n, int64_t nearest, int64_t farthest, double inside,
                      double outside, bool hermitian) {
    return scale_band(packed, n, {nearest, farthest, inside, outside, hermitian},
                      [](const BandScale& p) { cpu::scale_band(p, threads()); });
}

}  // namespace
}  // namespace packedtri

STABLE_TORCH_LIBRARY_FRAGMENT(packedtri, m) {
    m.def("pack(Tensor dense, int kind) -> Tensor");
    m.def("unpack(Tensor packed, SymInt n, int kind) -> Tensor");
    m.def("pack_block(Tensor dense, SymInt n, int kind, SymInt top, SymInt left) -> Tensor");
    m.def(
        "unpack_block(Tensor packed, SymInt n, int kind, SymInt top, SymInt left, SymInt rows,"
        " SymInt cols) -> Tensor");
    m.def(
        "write_block_(Tensor(a!) packed, Tensor dense, SymInt n, int kind, SymInt top, SymInt left)"
        " -> ()");
    m.def("unpack_rows(Tensor rows, SymInt first, SymInt last) -> Tensor");
    m.def("pack_rows(Tensor dense, SymInt first) -> Tensor");
    m.def("multiply_rows(Tensor rows, Tensor x, SymInt first, SymInt last, int kind) -> Tensor");
    m.def("diagonal(Tensor packed, SymInt n, SymInt below) -> Tensor");
    m.def("embed_diagonal(Tensor elements, SymInt n, SymInt below) -> Tensor");
    m.def(
        "scale_band(Tensor packed, SymInt n, SymInt nearest, SymInt farthest, float inside,"
        " float outside, bool hermitian) -> Tensor");
    m.def("_pack(Tensor dense, int kind) -> Tensor");
    m.def("_unpack(Tensor packed, int n, int kind) -> Tensor");
    m.def(
        "_unpack_block(Tensor packed, int n, int kind, int top, int left, int rows, int cols)"
        " -> Tensor");
    m.def("_diagonal(Tensor packed, int n, int below) -> Tensor");
    m.def("_embed_diagonal(Tensor elements, int n, int below) -> Tensor");
    m.def(
        "_scale_band(Tensor packed, int n, int nearest, int farthest, float inside,"
        " float outside, bool hermitian) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(packedtri, CPU, m) {
    PACKEDTRI_IMPL(m, "pack", pack_cpu);
    PACKEDTRI_IMPL(m, "unpack", unpack_cpu);
    m.impl("pack_block", PACKEDTRI_BOX(pack_block_cpu));
    PACKEDTRI_IMPL(m, "unpack_block", unpack_block_cpu);
    m.impl("write_block_", PACKEDTRI_BOX(write_block_cpu));
    m.impl("unpack_rows", PACKEDTRI_BOX(unpack_rows_cpu));
    m.impl("pack_rows", PACKEDTRI_BOX(pack_rows_cpu));
    m.impl("multiply_rows", PACKEDTRI_BOX(multiply_rows_cpu));
    PACKEDTRI_IMPL(m, "diagonal", diagonal_cpu);
    PACKEDTRI_IMPL(m, "embed_diagonal", embed_diagonal_cpu);
    PACKEDTRI_IMPL(m, "scale_band", scale_band_cpu);
}
