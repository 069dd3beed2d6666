#include "engine_layout.h"

#include <algorithm>
#include <stdexcept>

#include "choice.h"

namespace packedtri::cuda {
namespace {

// The blocks of the image of the rows of memory. A triangle has none past its diagonal, and half of a symmetric
// matrix none past the large squares there.
Grid blocks_of(const Operand& x, bool half) {
    const bool by_rows = runs_along_rows(x);
    const auto blocks = [](int64_t size) { return static_cast<int>(ceil_div(size, Image::SIDE)); };
    return {blocks(by_rows ? x.rows : x.cols), blocks(by_rows ? x.cols : x.rows),
            is_triangular(x.kind) || half, half ? Image::LARGE : int8_t{0}};
}

// Whether images of symmetric operands have the stored half of their blocks alone. Halves of tiles have no kernel for that.
bool reads_half(const Product& p, const Config& config) {
    if (config.tile == TileSize::Half) return false;
    return config.tile == TileSize::Large || p.k >= least_half_image(p);
}

EngineSource source(const Product& p, const Operand& x, bool is_a, const Config& config) {
    EngineSource s{};
    const bool half = x.kind == Kind::Symmetric && reads_half(p, config);
    s.run = {x.kind, half || runs_along_rows(x) != is_a, half};
    s.mapped = mappable(p, x);
    s.same = x.batch_stride == 0;
    s.blocks = blocks_of(x, half);
    s.part_bytes = s.blocks.count() * Image::BLOCK_BYTES;
    s.bytes = s.mapped      ? 0
              : in_parts(p) ? 3 * s.part_bytes
              : p.tf32      ? s.part_bytes + scratch_piece(ImageScale::bytes(s.blocks.count()))
                            : s.part_bytes;
    return s;
}

// Whether products of the elements of images may be nan where the product is not: zeros past a diagonal, times what
// is not finite, and parts of float32. Images in TF32 lack some range.
bool may_spoil(const Product& p) { return has_triangle(p) || p.dtype == DType::f32; }

}  // namespace

bool mappable(const Product& p, const Operand& x) {
    if (x.kind != Kind::Dense || x.stagger != Stagger::None) return false;
    if (p.dtype == DType::f32) return false;
    const bool by_rows = runs_along_rows(x);
    const int64_t stride = by_rows ? x.row_stride : x.col_stride;
    if (stride < (by_rows ? x.cols : x.rows)) return false;  // One row for all.
    return rows_begin_at(16, x.data, stride, x.batch_stride, element_size(p.dtype));
}

bool same_image(const Operand& x, const Operand& other) {
    return x.data == other.data && x.kind != Kind::Dense && other.kind != Kind::Dense &&
           (x.kind == Kind::Symmetric) == (other.kind == Kind::Symmetric) && x.rows == other.rows &&
           x.row_stride == other.row_stride && x.batch_stride == other.batch_stride &&
           x.stagger == other.stagger && x.strict == other.strict;
}

bool maps_dense_operand(const Product& p) { return mappable(p, p.a) || mappable(p, p.b); }

namespace {

bool result_is_aligned(const Product& p) {
    const Result& c = p.c;
    return c.kind == Kind::Dense && !c.staggered &&
           rows_begin_at(16, c.data, c.row_stride, c.batch_stride, element_size(p.dtype));
}

}  // namespace

bool stores_boxes(const Product& p) { return element_size(p.dtype) == 2 && result_is_aligned(p); }

bool can_join(const Product& p) {
    return p.batch > 1 && is_plain(p) && !p.tf32 && p.a.kind != Kind::Dense &&
           p.a.batch_stride == 0 && p.b.kind == Kind::Dense && p.b.batch_stride != 0 &&
           p.n % Image::SIDE == 0 && (mappable(p, p.b) || in_parts(p)) && result_is_aligned(p);
}

Product joined(const Product& p) {
    Product all = p;
    all.batch = 1;
    all.n = all.b.cols = all.c.row_stride = p.batch * p.n;
    if (runs_along_rows(p.b)) all.b.row_stride = all.n;
    return all;
}

namespace {

// The elements that the tensor cores multiply have two bytes.
bool exceeds_cache(const Operand& x) {
    constexpr int64_t most = int64_t{40} << 20;
    return x.kind == Kind::Dense && x.rows * x.cols * 2 > most;
}

Panels panels_of(const Product& p, const Config& config, int64_t side) {
    // An item names its panel where it names a matrix otherwise.
    const auto countable = [&](int64_t across) {
        return ceil_div(across, side) < EngineItem::MOST_MATRICES;
    };
    // Three parts of float32 are multiplied for longer than they are waited for, and halves of tiles are for products that
    // have few.
    if (in_parts(p) || config.tile == TileSize::Half || config.method != Method::Engine ||
        config.part > 0 || config.group > 1 || p.batch > 1 || p.c.kind != Kind::Dense)
        return Panels::None;
    if (p.a.kind != Kind::Dense && exceeds_cache(p.b) && countable(p.n)) return Panels::Columns;
    if (p.b.kind != Kind::Dense && exceeds_cache(p.a) && countable(p.m)) return Panels::Rows;
    return Panels::None;
}

}  // namespace

EngineLayout engine_layout(const Product& p, const Config& config, int multiprocessors) {
    EngineLayout layout{};
    layout.a = source(p, p.a, true, config);
    layout.b = source(p, p.b, false, config);
    layout.shared_image = same_image(p.a, p.b);
    const int64_t side = engine_tile_side(config.tile);
    Product of_work = p;
    layout.panels = panels_of(p, config, side);
    if (layout.panels != Panels::None) {
        int64_t& across = layout.panels == Panels::Columns ? of_work.n : of_work.m;
        layout.panel_count = static_cast<int>(ceil_div(across, side));
        across = std::min(across, side);
    }
    const Schedule schedule = schedule_of(of_work, side, config.group);
    const int64_t shared =
        config.split > 1
            ? schedule.count_long(static_cast<int>(ceil_div(p.k, side)), config.split_above)
            : 0;
    const int halved = config.tile == TileSize::Half;
    layout.work = {schedule, config.split,
                   static_cast<int>(std::min(shared, schedule.size())) << halved, config.part,
                   halved};
    if (config.part > 0) {
        layout.cut = part_work(p, side, config.part, multiprocessors / 2);
        layout.places = layout.cut.places();
        if (layout.places > EnginePiece::MOST_PLACES)
            throw std::runtime_error("[packedtri] so many parts of sums have no room");
    }
    if (may_spoil(p)) layout.marks = Marks::count(static_cast<int>(p.m), static_cast<int>(p.n));
    if (p.tf32) layout.lines = ceil_div(p.m, Image::SIDE) + ceil_div(p.n, Image::SIDE);
    return layout;
}

}  // namespace packedtri::cuda
