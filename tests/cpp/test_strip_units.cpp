// How strips are cut into units, and these are shared: every element of a triangle is in one unit of one block.
#include "cuda/strip_units.h"

#include <algorithm>
#include <vector>

#include "check.h"
#include "cuda/unit_shares.h"

using namespace packedtri;
using namespace packedtri::cuda;

// A band of the triangle has one unit for each strip that has columns in it, in the order of bands within a strip.
void every_element_once(int64_t n) {
    const StripUnits units = strip_units(n);
    int64_t unit = 0;
    for (int strip = 0; strip < units.strips(); ++strip) {
        CHECK(units.before(strip) == unit, "n = %d, strip %d", (int)n, strip);
        for (int band = strip * STRIP_WIDTH / STRIP_BAND; band < units.bands; ++band, ++unit)
            CHECK(units.at(strip, band) == unit, "n = %d, strip %d, band %d", (int)n, strip, band);
    }
    CHECK(units.all() == unit, "n = %d", (int)n);
    CHECK(units.bands == ceil_div(n, STRIP_BAND) && units.strips() == ceil_div(n, STRIP_WIDTH),
          "n = %d", (int)n);
}

// Blocks follow one another, each has a unit at least, and who has a unit is known. A block and a strip give another
// number for each pair of them that have a unit in common.
void shared_in_order(int64_t n, int64_t matrices, int64_t most_blocks) {
    const StripUnits units = strip_units(n);
    const int64_t all = units.all() * matrices, blocks = std::min(all, most_blocks);
    CHECK(first_unit(0, blocks, all) == 0 && first_unit(blocks, blocks, all) == all, "all of %d",
          (int)all);
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t begin = first_unit(block, blocks, all),
                      end = first_unit(block + 1, blocks, all);
        CHECK(begin < end, "block %d of %d", (int)block, (int)blocks);
        for (int64_t unit = begin; unit < end; ++unit)
            CHECK(block_of_unit(unit, blocks, all) == block, "unit %d", (int)unit);
    }
    std::vector<int> taken(static_cast<size_t>(blocks + matrices * units.strips()));
    for (int64_t matrix = 0; matrix < matrices; ++matrix)
        for (int strip = 0; strip < units.strips(); ++strip) {
            const int64_t first = matrix * units.all() + units.before(strip),
                          last = matrix * units.all() + units.before(strip + 1) - 1;
            for (int64_t block = block_of_unit(first, blocks, all);
                 block <= block_of_unit(last, blocks, all); ++block) {
                int& place = taken[static_cast<size_t>(block + matrix * units.strips() + strip)];
                CHECK(place == 0, "block %d, strip %d", (int)block, strip);
                place = 1;
            }
        }
}

int main() {
    for (int64_t n : {1, 2, 31, 32, 33, 255, 256, 257, 1000, 8192, 100000}) {
        every_element_once(n);
        for (int64_t matrices : {1, 3})
            for (int64_t blocks : {1, 7, 132}) shared_in_order(n, matrices, blocks);
    }
    every_element_once(STRIP_ORDER);
    std::puts("strip units: ok");
}
