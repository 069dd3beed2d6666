// The order of tiles on a GPU: every tile exactly once, and the longest sums early.
#include "cuda/schedule.h"

#include <vector>

#include "check.h"
#include "krange.h"

using namespace packedtri;
using cuda::Schedule;
using Longest = Schedule::Longest;

const Longest orders[] = {Longest::FarFromDiagonal, Longest::LowRows, Longest::HighRows,
                          Longest::LowColumns, Longest::HighColumns};

void every_tile_once(const Schedule& s) {
    std::vector<int> seen(s.tiles_m * s.tiles_n);
    for (int64_t index = 0; index < s.size(); ++index) {
        const Schedule::Tile t = s.at(index), narrow = s.at(static_cast<int>(index));
        CHECK(narrow.i == t.i && narrow.j == t.j && narrow.exists == t.exists,
              "in 32 bits (%d, %d)", narrow.i, narrow.j);
        if (!t.exists) continue;
        CHECK(t.i >= 0 && t.i < s.tiles_m && t.j >= 0 && t.j < s.tiles_n, "(%d, %d)", t.i, t.j);
        ++seen[t.i * s.tiles_n + t.j];
    }
    for (int i = 0; i < s.tiles_m; ++i)
        for (int j = 0; j < s.tiles_n; ++j)
            CHECK(seen[i * s.tiles_n + j] == ((s.lower || s.trapezoid) && j > i ? 0 : 1),
                  "%d x %d tiles, group %d, order %d: (%d, %d) came %d times", s.tiles_m, s.tiles_n,
                  s.group, (int)s.longest, i, j, seen[i * s.tiles_n + j]);
}

// Without groups the lengths of the sums never grow along the schedule.
void longest_first(Kind a, Kind b, bool lower) {
    const int tiles = 9;
    const Schedule s{tiles, tiles, 1, lower, cuda::longest_first(a, b, lower)};
    int64_t last = tiles;
    for (int64_t index = 0; index < s.size(); ++index) {
        const Schedule::Tile t = s.at(index);
        if (!t.exists) continue;
        const int64_t length = k_range(a, b, t.i, t.i + 1, t.j, t.j + 1, tiles).length();
        CHECK(length <= last, "kinds %d, %d: (%d, %d) has %d steps after %d", (int)a, (int)b, t.i,
              t.j, (int)length, (int)last);
        last = length;
    }
}

// The first count_long indices, and no others, have sums of at least `length` tiles.
void long_sums_first(Kind a, Kind b, bool lower) {
    const int tiles = 9;
    const Schedule s{tiles, tiles, 1, lower, cuda::longest_first(a, b, lower)};
    for (int length = 1; length <= tiles + 1; ++length)
        for (int64_t index = 0; index < s.size(); ++index) {
            const Schedule::Tile t = s.at(index);
            const KRange k = k_range(a, b, t.i, t.i + 1, t.j, t.j + 1, tiles);
            CHECK((k.length() >= length) == (index < s.count_long(tiles, length)),
                  "kinds %d, %d: sum %d of %d steps, counted %d of at least %d", (int)a, (int)b,
                  (int)index, (int)k.length(), (int)s.count_long(tiles, length), length);
        }
}

int main() {
    for (const Longest order : orders)
        for (const int group : {1, 2, 3, 8})
            for (int m = 1; m <= 20; ++m) {
                every_tile_once({m, m, group, true, order});
                for (int n = 1; n <= 20; ++n) {
                    every_tile_once({m, n, group, false, order});
                    every_tile_once({m, n, group, false, order, true});
                }
            }
    longest_first(Kind::Lower, Kind::Lower, true);
    longest_first(Kind::Lower, Kind::Dense, false);
    longest_first(Kind::Upper, Kind::Dense, false);
    longest_first(Kind::Dense, Kind::Lower, false);
    longest_first(Kind::Dense, Kind::Upper, false);
    longest_first(Kind::Upper, Kind::Lower, true);  // The sum runs over k >= i, in Lᵀ L.
    longest_first(Kind::Lower, Kind::Upper, true);  // And over k <= j, in L Lᵀ.
    long_sums_first(Kind::Lower, Kind::Lower, true);
    long_sums_first(Kind::Lower, Kind::Dense, false);
    long_sums_first(Kind::Upper, Kind::Dense, false);
    long_sums_first(Kind::Dense, Kind::Lower, false);
    long_sums_first(Kind::Dense, Kind::Upper, false);
    long_sums_first(Kind::Upper, Kind::Lower, true);
    long_sums_first(Kind::Lower, Kind::Upper, true);
    long_sums_first(Kind::Lower, Kind::Dense, true);
    long_sums_first(Kind::Dense, Kind::Lower, true);
    long_sums_first(Kind::Upper, Kind::Dense, true);
    long_sums_first(Kind::Dense, Kind::Upper, true);
    std::puts("schedule: ok");
}
