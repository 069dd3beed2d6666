#include "engine_layout.h"

#include <algorithm>

namespace packedtri::cuda {
namespace {

// A map needs a matrix whose rows start at multiples of 16 bytes, at equal distances. It does not
// split elements and does not transpose.
bool mappable(const Product& p, const Operand& x, bool across) {
    if (x.kind != Kind::Dense || x.stagger != Stagger::None) return false;
    if (p.dtype == DType::f32 && (!p.tf32 || across)) return false;
    const bool by_rows = runs_along_rows(x);
    const int64_t stride = by_rows ? x.row_stride : x.col_stride, unit = 16 / element_size(p.dtype);
    if (stride < (by_rows ? x.cols : x.rows)) return false;  // One row for all.
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && stride % unit == 0 &&
           x.batch_stride % unit == 0;
}

// How many images an operand takes.
int images(const Product& p) { return p.dtype != DType::f32 ? 1 : p.tf32 ? 2 : 3; }

// The blocks of the image of the rows of memory. A triangle has none past its diagonal; of a symmetric
// matrix both halves are made.
Grid blocks_of(const Operand& x) {
    const bool by_rows = runs_along_rows(x);
    const auto blocks = [](int64_t size) { return static_cast<int>(ceil_div(size, Image::SIDE)); };
    return {blocks(by_rows ? x.rows : x.cols), blocks(by_rows ? x.cols : x.rows),
            is_triangular(x.kind)};
}

EngineSource source(const Product& p, const Operand& x, bool is_a) {
    EngineSource s{};
    // A symmetric matrix is its own transpose: its image need not be another for either operand.
    s.across = runs_along_rows(x) != is_a && !(p.tf32 && x.kind == Kind::Symmetric);
    s.mapped = mappable(p, x, s.across);
    s.same = x.batch_stride == 0;
    s.blocks = blocks_of(x);
    s.part_bytes = s.blocks.count() * Image::BLOCK_BYTES;
    s.bytes = s.mapped ? 0 : s.part_bytes * images(p);
    return s;
}

bool same_memory(const Operand& a, const Operand& b) {
    return a.data == b.data && a.kind != Kind::Dense && b.kind != Kind::Dense &&
           (a.kind == Kind::Symmetric) == (b.kind == Kind::Symmetric) && a.rows == b.rows &&
           a.row_stride == b.row_stride && a.batch_stride == b.batch_stride &&
           a.stagger == b.stagger && a.strict == b.strict;
}

// Whether products of the elements of images may be nan where the product is not: zeros past a diagonal, times what
// is not finite, and parts of float32. TF32 rounds the largest elements to infinity.
bool may_spoil(const Product& p) { return has_triangle(p) || p.dtype == DType::f32; }

}  // namespace

// The blocks of TF32 images are transposed for one of two operands that are read differently.
bool same_image(const Product& p, const Operand& x, const EngineSource& source,
                const Operand& other, const EngineSource& other_source) {
    return same_memory(x, other) && (!p.tf32 || source.across == other_source.across);
}

bool shares_image(const Product& p) {
    return same_image(p, p.a, source(p, p.a, true), p.b, source(p, p.b, false));
}

bool maps_dense_operand(const Product& p) {
    return source(p, p.a, true).mapped || source(p, p.b, false).mapped;
}

EngineLayout engine_layout(const Product& p, const Config& config) {
    EngineLayout layout{};
    layout.a = source(p, p.a, true);
    layout.b = source(p, p.b, false);
    layout.shared_image = shares_image(p);
    const int64_t side = engine_tile_side(config.tile);
    const Schedule schedule = schedule_of(p, side, config.group);
    const int64_t shared =
        config.split > 1
            ? schedule.count_long(static_cast<int>(ceil_div(p.k, side)), config.split_above)
            : 0;
    layout.work = {schedule, config.split, static_cast<int>(std::min(shared, schedule.size()))};
    if (may_spoil(p))
        layout.marks = 2 * ceil_div(p.m, 2 * Image::SIDE) * ceil_div(p.n, MARKED_COLUMNS);
    return layout;
}

}  // namespace packedtri::cuda
