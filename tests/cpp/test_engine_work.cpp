// What the engine's blocks of threads do, against the definitions: every part of every tile once, and
// every product of two stored blocks once.
#include "cuda/engine_work.h"

#include <algorithm>
#include <vector>

#include "check.h"

using namespace packedtri;
using cuda::EngineItem;
using cuda::EnginePiece;
using cuda::EngineTile;
using cuda::EngineWork;
using cuda::Run;

std::vector<EngineItem> items_of(const EngineWork& work) {
    std::vector<EngineItem> items;
    const auto add = [&](EngineItem item, bool exists) {
        if (!exists) return;
        item.product = item.i % 2;
        item.matrix = item.j % 2 ? EngineItem::MOST_MATRICES - 1 : item.i;
        const EngineItem same = EngineItem::of(item.word());
        CHECK(same.i == item.i && same.j == item.j && same.share == item.share &&
                  same.product == item.product && same.matrix == item.matrix && item.word() >= 0,
              "(%d, %d), %d of %d, matrix %d", item.i, item.j, item.share, item.product,
              item.matrix);
        items.push_back(item);
    };
    bool exists = false;
    for (int tile = 0; tile < work.shared_tiles; ++tile)
        for (int part = 0; part < work.split; ++part) {
            const EngineItem item = work.shared(tile, part, exists);
            if (exists)
                CHECK(work.parts(item) == work.split && work.part(item) == part, "part %d", part);
            add(item, exists);
        }
    work.shared(work.shared_tiles, 0, exists);
    CHECK(!exists, "tile %d is not shared", work.shared_tiles);
    work.alone(static_cast<int>(work.size()), exists);
    CHECK(!exists, "tile %d is behind the last", (int)work.size());
    for (int number = 0; number < work.size(); ++number) {
        const EngineItem item = work.alone(number, exists);
        CHECK(work.parts(item) == 1 && work.part(item) == 0, "tile %d", number);
        add(item, exists);
    }
    return items;
}

// Whether block (r, c) of a matrix of this kind holds stored elements.
bool stored(Kind kind, int r, int c) {
    return kind == Kind::Lower ? c <= r : kind == Kind::Upper ? c >= r : true;
}

// All that blocks draw of a product, in blocks of images, whose sums are cut, as words carry it.
std::vector<EnginePiece> pieces_of(const EngineWork& work, Kind a, Kind b, bool lower, int m, int n,
                                   int k) {
    packedtri::Product p{};
    p.m = m * 64;
    p.n = n * 64;
    p.k = k * 64;
    p.batch = 1;
    p.a.kind = a;
    p.b.kind = b;
    p.c.kind = lower ? Kind::Lower : Kind::Dense;
    const cuda::PartWork cut = cuda::part_work(p, 256, work.cut, 66);
    std::vector<EnginePiece> pieces;
    for (int number = 0; number < cut.items; ++number) {
        EnginePiece item;
        if (!cut.find(number, work.schedule, 1, a, b, k, item.piece)) continue;
        CHECK(item.word() >= 0, "(%d, %d)", item.piece.i, item.piece.j);
        const EnginePiece same = EnginePiece::of(item.word());
        const auto &x = same.piece, &y = item.piece;
        CHECK(x.i == y.i && x.j == y.j && x.part == y.part && x.parts == y.parts &&
                  x.first == y.first && x.last == y.last,
              "(%d, %d), part %d", y.i, y.j, y.part);
        pieces.push_back(same);
    }
    return pieces;
}

// Whether the image of a symmetric matrix has what a line of a tile reads at a step, and the tile turns where its lines do.
void symmetric_line(int line, int step, int blocks, int turn) {
    const cuda::Grid grid{blocks, blocks, true, cuda::Image::LARGE};
    CHECK(turn == Run({Kind::Symmetric, false, true}).turn(line), "line %d turns at %d", line,
          turn);
    CHECK(step < turn ? grid.has(line, step) : grid.has(step, line), "line %d, step %d of %d", line,
          step, blocks);
}

// Counts how often block (i, j) of the result gets the product of blocks (i, k) and (k, j).
template <int ROWS, int COLS, int CLUSTER, class Item>
void every_product_once(Kind a, Kind b, bool ascending, bool lower, int m, int n, int k,
                        const EngineWork& work, const std::vector<Item>& items) {
    std::vector<int> count(m * n * k);
    for (const Item& item : items)
        for (int rank = 0; rank < CLUSTER; ++rank) {
            const EngineTile<ROWS, COLS, CLUSTER> tile({a, false, a == Kind::Symmetric},
                                                       {b, ascending, b == Kind::Symmetric}, work,
                                                       item, rank, n, k);
            const KRange whole = tile.whole(std::min(ROWS, m - tile.i0));
            for (int x = whole.begin; x < whole.end; ++x)
                CHECK(tile.needs_row(0, x) && tile.needs_row(ROWS - 1, x) &&
                          tile.missing_columns(x) == 0,
                      "kinds %d, %d: step %d is not whole", (int)a, (int)b, x);
            // Of halves, which has one row, all other steps need it, and one column.
            for (int x = tile.k0; x < tile.k1; ++x)
                if (ROWS == 1 && tile.i0 < m && (x < whole.begin || x >= whole.end))
                    CHECK(tile.needs_row(0, x) && tile.missing_columns(x) == COLS - 1,
                          "kinds %d, %d: step %d of half a tile", (int)a, (int)b, x);
            for (int x = tile.k0; x < tile.end(); ++x)
                for (int row = 0; row < ROWS; ++row)
                    for (int place = 0; place < COLS - tile.missing_columns(x); ++place) {
                        const int i = tile.i0 + row, j = tile.j0 + tile.column_at(place, ascending);
                        if (i >= m || j >= n || !tile.needs_row(row, x)) continue;
                        CHECK(stored(b, x, j), "kinds %d, %d: no block (%d, %d) of B", (int)a,
                              (int)b, x, j);
                        if (a == Kind::Symmetric) symmetric_line(i, x, k, tile.a_turn);
                        if (b == Kind::Symmetric) symmetric_line(j, x, k, tile.b_turn);
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

// A tile has two rows of blocks, or one where the tiles of the schedule are `halved`.
template <int ROWS, int COLS, int CLUSTER>
void every_product(int m, int n, int k, int split, int above, int group) {
    const int side = 2 * CLUSTER;
    for (const Kind a : {Kind::Lower, Kind::Upper, Kind::Symmetric, Kind::Dense})
        for (const Kind b : {Kind::Lower, Kind::Upper, Kind::Symmetric, Kind::Dense})
            for (const bool lower : {false, true}) {
                if ((a != Kind::Dense && m != k) || (b != Kind::Dense && n != k)) continue;
                if (lower && m != n) continue;
                const cuda::Schedule schedule{(m + side - 1) / side, (n + COLS - 1) / COLS, group,
                                              lower, cuda::longest_first(a, b, lower)};
                const int64_t tiles = schedule.count_long((k + side - 1) / side, above);
                constexpr int halved = ROWS == 1;
                const int shared =
                    split > 1 ? static_cast<int>(std::min(tiles, schedule.size())) << halved : 0;
                const EngineWork work{schedule, split, shared, above, halved};
                const auto check = [&](const auto& items) {
                    if (b != Kind::Upper)
                        every_product_once<ROWS, COLS, CLUSTER>(a, b, true, lower, m, n, k, work,
                                                                items);
                    if (b == Kind::Upper || b == Kind::Dense)
                        every_product_once<ROWS, COLS, CLUSTER>(a, b, false, lower, m, n, k, work,
                                                                items);
                };
                check(items_of(work));
                if (CLUSTER > 1 && group == 1) check(pieces_of(work, a, b, lower, m, n, k));
            }
}

// Every item of every matrix once, and those of matrices that take turns in their order.
void every_matrix(int matrices, int each, int slots, int tail) {
    const cuda::BatchOrder order = cuda::batch_order(matrices, each, slots, tail);
    const int early = each - tail;
    CHECK(order.group >= 1 && order.group <= matrices &&
              (order.group == matrices || order.group * early >= slots || early == 0),
          "groups of %d of %d matrices", order.group, matrices);
    CHECK(order.all == matrices * each, "%d items", order.all);
    std::vector<int> next(matrices);
    for (int number = 0; number < matrices * each; ++number) {
        const auto place = order.at(number);
        CHECK(place.matrix >= 0 && place.matrix < matrices && place.number == next[place.matrix],
              "item %d of %d matrices: %d of matrix %d", number, matrices, place.number,
              place.matrix);
        ++next[place.matrix];
        // The last items of all matrices come behind the others of all of them.
        const bool late = matrices > 1 && place.number >= early;
        const int group = place.matrix / order.group;
        for (int x = 0; x < (late ? matrices : group * order.group); ++x)
            CHECK(next[x] >= (matrices > 1 ? early : each), "matrix %d comes before %d ends",
                  place.matrix, x);
    }
}

// Items by number, of which every third does not exist.
struct Numbered {
    int shared, lone;
    int shared_items() const { return shared; }
    int lone_items() const { return lone; }
    int64_t shared_item(int number, int part) const { return word(0, number, part); }
    int64_t lone_item(int number) const { return word(1, number, 0); }
    static int64_t word(int kind, int number, int part) {
        return number % 3 == 1 ? EngineItem::NONE : kind * 1000000 + number * 10 + part;
    }
};

// What blocks begin with, and then share and draw, is every item once.
void every_item_from_the_first(int shared, int lone, int groups, int sharers) {
    const Numbered items{shared, lone};
    std::vector<int64_t> first(groups * sharers, -7), seen;
    const int dealt = cuda::deal_first(items, groups, sharers, first.data());
    for (int g = 0; g < groups; ++g)
        for (int part = 0; part < sharers; ++part) {
            const int64_t word = first[g * sharers + part];
            if (word != EngineItem::NONE) seen.push_back(word);
            bool began = false;
            for (int tile = g; tile < shared; tile += groups)
                if (const int64_t next = items.shared_item(tile, part); next != EngineItem::NONE) {
                    if (began) seen.push_back(next);
                    else
                        CHECK(word == next, "block %d begins with %lld", g * sharers + part,
                              (long long)word);
                    began = true;
                }
        }
    for (int number = dealt; number < lone; ++number)
        if (items.lone_item(number) != EngineItem::NONE) seen.push_back(items.lone_item(number));
    std::vector<int64_t> all;
    for (int tile = 0; tile < shared; ++tile)
        for (int part = 0; part < sharers; ++part) all.push_back(items.shared_item(tile, part));
    for (int number = 0; number < lone; ++number) all.push_back(items.lone_item(number));
    all.erase(std::remove(all.begin(), all.end(), EngineItem::NONE), all.end());
    std::sort(seen.begin(), seen.end());
    std::sort(all.begin(), all.end());
    CHECK(seen == all, "%d shared, %d others, %d groups of %d", shared, lone, groups, sharers);
}

int main() {
    for (const int shared : {0, 1, 2, 5, 12})
        for (const int lone : {0, 1, 2, 9, 30})
            for (const int groups : {1, 2, 3, 8})
                for (const int sharers : {1, 2, 4})
                    every_item_from_the_first(shared, lone, groups, sharers);
    for (const int matrices : {1, 2, 3, 7, 40})
        for (const int each : {1, 3, 10})
            for (const int slots : {1, 2, 66})
                for (const int tail : {0, 1, each / 2, each})
                    every_matrix(matrices, each, slots, tail);
    for (const int split : {1, 2, 4, 8})
        for (const int above : {1, 2, 3})
            for (const int group : {1, 2}) {
                for (const int n : {1, 2, 3, 7, 8, 13}) {
                    every_product<2, 2, 1>(n, n, n, split, above, group);
                    every_product<1, 2, 1>(n, n, n, split, above, group);
                    every_product<2, 4, 2>(n, n, n, split, above, group);
                }
                every_product<2, 2, 1>(5, 9, 5, split, above, group);
                every_product<1, 2, 1>(5, 9, 5, split, above, group);
                every_product<2, 4, 2>(9, 5, 5, split, above, group);
            }
    // More tiles than there are clusters, of which those that are left over are cut.
    every_product<2, 4, 2>(50, 50, 9, 1, 2, 1);
    std::puts("engine_work: ok");
}
