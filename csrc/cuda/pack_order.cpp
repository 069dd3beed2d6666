#include "pack_order.h"

#include <algorithm>

namespace packedtri::cuda {
namespace {

class OrderBuilder {
  public:
    OrderBuilder(PackOrder& order, const Grid* images, int count) : order_(order) {
        for (int x = 0; x < MOST_IMAGES; ++x) {
            if (x < count) order.pieces[x] = PackOrder::pieces_of(images[x]);
            std::fill_n(order.phase_of_row[x], PackOrder::MOST_LINES, PackOrder::UNUSED);
            std::fill_n(order.phase_of_column[x], PackOrder::MOST_LINES, PackOrder::UNUSED);
        }
    }

    // Lines that tiles of the wave read, of which there are `lines`.
    void add(const ImageUse& use, int first, int count, int lines) {
        if (use.image == ImageUse::NONE) return;
        Need& need = needs_[use.image][use.by_columns];
        for (int line = first; line < std::min(first + count, lines); ++line) {
            if (phase_of(use.image, use.by_columns)[line] != PackOrder::UNUSED) continue;
            need.begin = std::min(need.begin, line);
            need.end = std::max(need.end, line + 1);
        }
    }

    // Makes the wave a phase, unless it reads nothing new. False where that is too many.
    bool end_wave() {
        PackOrder::Phase phase{};
        phase.first = order_.units;
        int begin = PackOrder::MOST_LINES, end = 0;
        for (int x = 0; x < MOST_IMAGES; ++x)
            for (const bool by_columns : {false, true}) {
                Need& need = needs_[x][by_columns];
                if (need.begin >= need.end) continue;
                if (order_.phases == PackOrder::MOST_PHASES || phase.sources == MOST_IMAGES)
                    return false;
                uint8_t* const of = phase_of(x, by_columns);
                // Lines between the new ones must be new too; else there is no order.
                for (int line = need.begin; line < need.end; ++line)
                    if (of[line] != PackOrder::UNUSED) return false;
                std::fill(of + need.begin, of + need.end, static_cast<uint8_t>(order_.phases));
                phase.of[phase.sources++] = {static_cast<int8_t>(x), by_columns,
                                             static_cast<int16_t>(need.begin),
                                             static_cast<int16_t>(need.end)};
                phase.lines = static_cast<int16_t>(phase.lines + need.end - need.begin);
                const auto [first, last] = sums(x, by_columns, need);
                begin = std::min(begin, first);
                end = std::max(end, last);
                need = {};
            }
        if (phase.sources == 0) return true;
        phase.k_begin = static_cast<int16_t>(begin);
        phase.k_end = static_cast<int16_t>(end);
        order_.of[order_.phases++] = phase;
        order_.units += (end - begin) * phase.lines * PackOrder::UNITS;
        return true;
    }

  private:
    struct Need {
        int begin = PackOrder::MOST_LINES, end = 0;
    };

    uint8_t* phase_of(int image, bool by_columns) {
        return by_columns ? order_.phase_of_column[image] : order_.phase_of_row[image];
    }

    // From where to where the lines have pieces.
    std::pair<int, int> sums(int image, bool by_columns, const Need& need) const {
        const Grid& pieces = order_.pieces[image];
        if (by_columns) return {pieces.packed ? need.begin : 0, pieces.rows};
        return {0, pieces.packed ? std::min(need.end, pieces.cols) : pieces.cols};
    }

    PackOrder& order_;
    Need needs_[MOST_IMAGES][2];
};

}  // namespace

bool set_pack_order(PackOrder& order, const OrderedProduct* products, int count, const Grid* images,
                    int image_count, int wave) {
    order = {};
    for (int x = 0; x < image_count; ++x)
        if (std::max(images[x].rows, images[x].cols) > PackOrder::MOST_LINES * PackOrder::SIDE)
            return false;
    OrderBuilder builder(order, images, image_count);
    // Tiles come in groups, which read the same lines.
    const int group = products[0].schedule.group, per_group = group * group;
    int64_t most = 0;
    for (int t = 0; t < count; ++t) most = std::max(most, products[t].schedule.size());
    const int64_t per_wave = std::max(per_group, wave / count / per_group * per_group);
    for (int64_t number = 0; number < most; number += per_group) {
        if (number > 0 && number % per_wave == 0 && !builder.end_wave()) return false;
        for (int t = 0; t < count; ++t) {
            const OrderedProduct& p = products[t];
            if (number >= p.schedule.size()) continue;
            const Schedule::Tile tile = p.schedule.at(number);
            builder.add(p.a, tile.i / group * group, group, p.schedule.tiles_m);
            builder.add(p.b, tile.j / group * group, group, p.schedule.tiles_n);
        }
    }
    return builder.end_wave();
}

}  // namespace packedtri::cuda
