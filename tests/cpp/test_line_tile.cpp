// Large tiles of float64 by lines (line_tile.h): no two elements have one place, reads meet no bank twice, and together the
// lanes of a warp read every element once.
#include <cstdio>
#include <set>
#include <vector>

#include "check.h"
#include "cuda/line_tile.h"

using namespace packedtri;
using namespace packedtri::cuda;

namespace {

template <bool K_MAJOR>
void check_places() {
    using Tile = LineTile<K_MAJOR>;
    // A copy has whole words of 16 bytes, two elements each.
    std::vector<int> used(Tile::SIZE, 0);
    for (int line = 0; line < Tile::LINES; ++line) {
        CHECK(Tile::place(line) % 2 == 0, "line %d", line);
        for (int x = 0; x < Tile::LENGTH + 2; ++x) {
            CHECK(Tile::place(line) + x < Tile::SIZE, "line %d, element %d", line, x);
            ++used[Tile::place(line) + x];
        }
    }
    for (int count : used) CHECK(count <= 1, "a place has %d elements", count);
}

// Lines begin where those of a packed triangle do, whose row 4 has an even number of elements before it.
template <bool K_MAJOR>
void check_shifts() {
    for (int line = 0; line < LineTile<K_MAJOR>::LINES; ++line)
        for (bool flip : {false, true})
            CHECK(LineTile<K_MAJOR>::shift(line, flip) == (row_start<int>(line) + flip) % 2,
                  "line %d", line);
}

template <bool K_MAJOR>
void check_reads(bool flip) {
    using Tile = LineTile<K_MAJOR>;
    constexpr int ROWS = 32, EIGHTS = ROWS / 8;
    for (int first = 0; first < Tile::SIDE; first += ROWS) {
        std::set<int> all;
        for (int eight = 0; eight < EIGHTS; ++eight)
            for (int sixteen = 0; sixteen < Tile::BK / 16; ++sixteen)
                for (int q = 0; q < 4; ++q) {
                    std::set<int> banks[2];
                    for (int lane = 0; lane < 32; ++lane) {
                        const int at = typename Tile::Lane(lane, first, flip).at(eight, sixteen, q);
                        const int r = first + eight * 8 + Tile::taken(lane / 4),
                                  k = sixteen * 16 + Tile::step(lane % 4, q),
                                  line = K_MAJOR ? r : k, within = K_MAJOR ? k : r;
                        CHECK(at == Tile::place(line) + Tile::shift(line, flip) + within, "lane %d",
                              lane);
                        banks[lane / 16].insert(at % 16);
                        all.insert(at);
                    }
                    CHECK(banks[0].size() == 16 && banks[1].size() == 16,
                          "8 rows number %d, 16 steps number %d, element %d", eight, sixteen, q);
                }
        CHECK(static_cast<int>(all.size()) == ROWS * Tile::BK, "%zu elements", all.size());
    }
}

}  // namespace

int main() {
    check_places<true>();
    check_places<false>();
    check_shifts<true>();
    check_shifts<false>();
    for (bool flip : {false, true}) {
        check_reads<true>(flip);
        check_reads<false>(flip);
    }
    std::puts("line_tile: ok");
}
