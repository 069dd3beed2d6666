// The order in which the engine makes images: every piece once, and before what is read later.
#include "cuda/pack_order.cpp"

#include <map>
#include <tuple>
#include <vector>

#include "check.h"
#include "problem.h"

using namespace packedtri;
using cuda::Grid;
using cuda::ImageUse;
using cuda::PackOrder;
using cuda::Schedule;

struct Case {
    Kind a, b;
    bool lower;
    int images;  // 1 where both operands are one tensor.
};
const Case cases[] = {
    {Kind::Lower, Kind::Lower, true, 2},  {Kind::Lower, Kind::Lower, true, 1},
    {Kind::Upper, Kind::Upper, true, 2},  {Kind::Lower, Kind::Upper, true, 1},
    {Kind::Lower, Kind::Upper, false, 2}, {Kind::Upper, Kind::Lower, true, 1},
    {Kind::Lower, Kind::Dense, false, 1}, {Kind::Dense, Kind::Upper, false, 1},
    {Kind::Upper, Kind::Lower, false, 2},
};

// Whether rows of memory run across the sum: a triangle is stored by the rows of its lower half.
bool across_a(Kind kind) { return kind == Kind::Upper; }
bool across_b(Kind kind) { return kind == Kind::Lower; }

struct Setting {
    cuda::OrderedProduct product;
    Grid image[2];
    int count;
};

// Of tiles as large as pieces.
int tiles_of(int blocks) { return static_cast<int>(ceil_div(blocks, PackOrder::SIDE)); }

Setting setting(const Case& c, int blocks, int group) {
    const int tiles = tiles_of(blocks);
    Setting s{};
    s.product.schedule = {tiles,  tiles, group, c.lower, cuda::longest_first(c.a, c.b, c.lower),
                          c.lower};
    s.count = 0;
    const auto use = [&](Kind kind, bool across) {
        if (!is_triangular(kind)) return ImageUse{ImageUse::NONE, false};
        if (s.count < c.images) s.image[s.count++] = {blocks, blocks, true};
        return ImageUse{s.count - 1, across};
    };
    s.product.a = use(c.a, across_a(c.a));
    s.product.b = use(c.b, across_b(c.b));
    return s;
}

void every_piece_once(const Case& c, int blocks, int group, int wave) {
    const Setting s = setting(c, blocks, group);
    PackOrder order;
    CHECK(cuda::set_pack_order(order, &s.product, 1, s.image, s.count, wave),
          "kinds %d %d, %d blocks, group %d", (int)c.a, (int)c.b, blocks, group);
    std::map<std::tuple<int, int, int, int>, int> seen;
    int phase = 0;
    for (int number = 0; number < order.units; ++number) {
        bool exists;
        const PackOrder::Unit u = PackOrder::Unit::of(order.at(number, phase, exists).word());
        if (exists) ++seen[{u.image, u.row, u.col, u.part}];
    }
    const int tiles = tiles_of(blocks);
    size_t expected = 0;
    for (int x = 0; x < s.count; ++x)
        for (int row = 0; row < tiles; ++row)
            for (int col = 0; col <= row; ++col)
                for (int part = 0; part < PackOrder::UNITS; ++part, ++expected)
                    CHECK((seen[{x, row, col, part}]) == 1, "piece (%d, %d) of %d came %d times",
                          row, col, x, seen[{x, row, col, part}]);
    CHECK(seen.size() == expected, "%d instead of %d", (int)seen.size(), (int)expected);
}

// What the first tiles read is made before the half of all units is, if there are many tiles.
void first_things_first() {
    const Setting s = setting(cases[0], 128, 8);
    PackOrder order;
    cuda::set_pack_order(order, &s.product, 1, s.image, s.count, 66);
    int phase = 0, last = 0;
    for (int number = 0; number < order.units; ++number) {
        bool exists;
        const PackOrder::Unit u = order.at(number, phase, exists);
        if (!exists) continue;
        const bool first_group = u.image == 0 ? u.row >= 24 : u.col < 8;
        if (first_group) last = number;
    }
    CHECK(last < order.of[1].first, "the last unit for the first group is %d", last);
    CHECK(order.of[1].first <= order.units * 6 / 10, "the first phase has %d of %d units",
          order.of[1].first, order.units);
}

// Two products that read one image by its rows and by its columns.
void two_products() {
    const int tiles = 9, parts = PackOrder::UNITS;
    const Grid images[3] = {{36, 36, true}, {36, 36, true}, {36, 36, true}};
    const cuda::OrderedProduct products[2] = {
        {{tiles, tiles, 1, true, Schedule::Longest::HighColumns, true}, {0, false}, {1, false}},
        {{tiles, tiles, 1, true, Schedule::Longest::LowRows, true}, {2, true}, {0, true}}};
    PackOrder order;
    CHECK(cuda::set_pack_order(order, products, 2, images, 3, 66), "no order");
    std::vector<int> seen(3 * tiles * tiles * parts);
    int phase = 0;
    for (int number = 0; number < order.units; ++number) {
        bool exists;
        const PackOrder::Unit u = PackOrder::Unit::of(order.at(number, phase, exists).word());
        if (exists) ++seen[((u.image * tiles + u.row) * tiles + u.col) * parts + u.part];
    }
    for (int x = 0; x < 3; ++x)
        for (int row = 0; row < tiles; ++row)
            for (int col = 0; col < tiles; ++col)
                for (int part = 0; part < parts; ++part)
                    CHECK((seen[((x * tiles + row) * tiles + col) * parts + part] == (col <= row)),
                          "piece (%d, %d) of %d", row, col, x);
}

int main() {
    for (const Case& c : cases)
        for (const int blocks : {1, 2, 5, 32, 33, 64, 127, 128})
            for (const int group : {1, 8})
                for (const int wave : {1, 16, 66, 132})
                    if (tiles_of(blocks) <= 16 || wave > 16)
                        every_piece_once(c, blocks, group, wave);
    first_things_first();
    two_products();
    const Setting large = setting(cases[0], 4 * 129, 8);
    PackOrder order;
    CHECK(!cuda::set_pack_order(order, &large.product, 1, large.image, 2, 66), "too many lines");
    std::printf("pack order: ok\n");
}
