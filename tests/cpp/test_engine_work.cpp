// What the engine's blocks of threads do, against the definitions: every part of every tile once,
// every product of two stored blocks once, and sums in parts that meet in any order.
#include "cuda/engine_work.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"

using namespace packedtri;
using cuda::EngineItem;
using cuda::EngineTile;
using cuda::EngineWork;

std::mt19937 random_bits(20261121);

std::vector<EngineItem> items_of(const EngineWork& work) {
    std::vector<EngineItem> items;
    for (int number = 0; number < work.size(); ++number) {
        bool exists = false;
        const EngineItem item = work.at(number, exists);
        if (!exists) continue;
        const EngineItem same = EngineItem::of(item.word());
        CHECK(same.i == item.i && same.j == item.j && same.share == item.share, "%d", number);
        items.push_back(item);
    }
    return items;
}

// Whether block (r, c) of a matrix of this kind holds stored elements.
bool stored(Kind kind, int r, int c) {
    return kind == Kind::Lower ? c <= r : kind == Kind::Upper ? c >= r : true;
}

// Counts how often block (i, j) of the result gets the product of blocks (i, k) and (k, j).
template <int COLS, int CLUSTER, bool B_ACROSS>
void every_product_once(Kind a, Kind b, bool lower, int m, int n, int k, const EngineWork& work) {
    constexpr int ROWS = 2;
    std::vector<int> count(m * n * k);
    for (const EngineItem& item : items_of(work))
        for (int rank = 0; rank < CLUSTER; ++rank) {
            const EngineTile<ROWS, COLS, CLUSTER, B_ACROSS> tile(a, b, work, item, rank, n, k);
            for (int x = tile.k0; x < tile.end(); ++x)
                for (int row = 0; row < ROWS; ++row)
                    for (int place = 0; place < COLS - tile.missing_columns(x); ++place) {
                        const int i = tile.i0 + row, j = tile.j0 + tile.column_at(place);
                        if (i >= m || j >= n || !tile.needs_row(row, x)) continue;
                        CHECK(stored(b, x, j), "kinds %d, %d: no block (%d, %d) of B", (int)a,
                              (int)b, x, j);
                        ++count[(i * n + j) * k + x];
                    }
        }
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < (lower ? i + 1 : n); ++j)
            for (int x = 0; x < k; ++x)
                CHECK(count[(i * n + j) * k + x] == (stored(a, i, x) && stored(b, x, j)),
                      "kinds %d, %d, %d parts: block (%d, %d) had step %d %d times", (int)a, (int)b,
                      work.split, i, j, x, count[(i * n + j) * k + x]);
}

template <int COLS, int CLUSTER>
void every_product(int m, int n, int k, int split, int above, int group) {
    const int side = 2 * CLUSTER;
    for (const Kind a : {Kind::Lower, Kind::Upper, Kind::Dense})
        for (const Kind b : {Kind::Lower, Kind::Upper, Kind::Dense})
            for (const bool lower : {false, true}) {
                if ((a != Kind::Dense && m != k) || (b != Kind::Dense && n != k)) continue;
                if (lower && m != n) continue;
                const cuda::Schedule schedule{(m + side - 1) / side, (n + COLS - 1) / COLS, group,
                                              lower, cuda::longest_first(a, b)};
                const int64_t tiles = schedule.count_long((k + side - 1) / side, above);
                const EngineWork work{
                    schedule, split,
                    split > 1 ? static_cast<int>(std::min(tiles, schedule.size())) : 0};
                if (b != Kind::Upper)
                    every_product_once<COLS, CLUSTER, true>(a, b, lower, m, n, k, work);
                if (b != Kind::Lower)
                    every_product_once<COLS, CLUSTER, false>(a, b, lower, m, n, k, work);
            }
}

// The parts of all sums come in a random order, and each walks up its pairs until it is the first of
// one. Exactly one part of each tile gets to the end, with the sum of all.
void parts_meet(int split) {
    const EngineWork work{{3, 3, 1, true, cuda::Schedule::Longest::LowRows}, split, 4};
    std::vector<EngineItem> shares;
    for (const EngineItem& item : items_of(work))
        if (item.share > 0) shares.push_back(item);
    CHECK(static_cast<int>(shares.size()) == 4 * split, "%d shares", (int)shares.size());
    for (int trial = 0; trial < 200; ++trial) {
        std::shuffle(shares.begin(), shares.end(), random_bits);
        std::vector<int> arrived(4 * split), left(4 * split), whole(4);
        for (const EngineItem& item : shares) {
            int sum = 1, width = 1;
            for (; width < split; width *= 2) {
                const int pair = work.pair(item, width);
                CHECK(pair >= 0 && pair < 4 * split, "pair %d", pair);
                CHECK(arrived[pair] < 2, "three at pair %d", pair);
                if (arrived[pair]++ == 0) {
                    left[pair] = sum;
                    break;
                }
                sum += left[pair];
            }
            if (width >= split) {
                CHECK(sum == split, "a sum of %d parts of %d", sum, split);
                ++whole[(item.share - 1) / split];
            }
        }
        for (const int count : whole) CHECK(count == 1, "%d parts had the whole", count);
    }
}

int main() {
    for (const int split : {1, 2, 4, 8})
        for (const int above : {1, 2, 3})
            for (const int group : {1, 2}) {
                for (const int n : {1, 2, 3, 7, 8, 13}) {
                    every_product<2, 1>(n, n, n, split, above, group);
                    every_product<4, 2>(n, n, n, split, above, group);
                }
                every_product<2, 1>(5, 9, 5, split, above, group);
                every_product<4, 2>(9, 5, 5, split, above, group);
            }
    for (const int split : {2, 4, 8}) parts_meet(split);
    std::puts("engine_work: ok");
}
