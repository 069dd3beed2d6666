// What blocks draw that go from tile to tile: every part of every sum exactly once, the longest first, and each with a
// place of its own.
#include "cuda/part_work.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "check.h"
#include "krange.h"

using namespace packedtri;
using cuda::PartWork;
using cuda::Schedule;

constexpr int64_t SIDE = 128, STEP = SIDE / PartWork::TILE;

Product product(Kind a, Kind b, Kind c, int64_t m, int64_t n, int64_t k, int64_t batch) {
    Product p{};
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = batch;
    p.a.kind = a;
    p.b.kind = b;
    p.c.kind = c;
    return p;
}

// Draws all items as blocks do, and returns how long each was, in their order.
std::vector<int> every_part_once(const Product& p, const PartWork& work) {
    const Schedule s = cuda::schedule_of(p, SIDE, 1);
    const auto steps = static_cast<int>(ceil_div(p.k, STEP)), batch = static_cast<int>(p.batch);
    std::map<std::array<int, 3>, std::vector<PartWork::Piece>> sums;  // By tile and matrix.
    std::set<int> places;
    std::vector<int> lengths;
    for (int number = 0; number < work.items; ++number) {
        PartWork::Piece x;
        if (!work.find(number, s, batch, p.a.kind, p.b.kind, steps, x)) continue;
        CHECK(x.i >= 0 && x.i < s.tiles_m && x.j >= 0 && x.j < s.tiles_n, "(%d, %d)", x.i, x.j);
        sums[{x.i, x.j, x.matrix}].push_back(x);
        lengths.push_back(x.end - x.begin);
        CHECK(x.part >= 0 && x.part < x.parts, "part %d of %d", x.part, x.parts);
        if (x.parts == 1) continue;
        CHECK(x.end > x.begin && x.end - x.begin < work.part + PartWork::LEAST, "%d steps",
              x.end - x.begin);
        const int place = x.place(x.part);
        CHECK(place >= 0 && place < work.places(), "place %d of %d", place, work.places());
        CHECK(places.insert(place).second, "place %d again", place);
    }
    for (int i = 0; i < s.tiles_m; ++i)
        for (int j = 0; j < s.tiles_n; ++j)
            for (int matrix = 0; matrix < batch; ++matrix) {
                if (p.c.kind == Kind::Lower && j > i) {
                    CHECK(sums.count({i, j, matrix}) == 0, "(%d, %d) is not needed", i, j);
                    continue;
                }
                // They follow one another, and agree about their places.
                const auto range = k_range(p.a.kind, p.b.kind, i * SIDE, (i + 1) * SIDE, j * SIDE,
                                           (j + 1) * SIDE, p.k);
                int64_t k = range.begin;
                auto& pieces = sums[{i, j, matrix}];
                std::sort(pieces.begin(), pieces.end(),
                          [](const auto& a, const auto& b) { return a.part < b.part; });
                CHECK(!pieces.empty(), "(%d, %d) is missing", i, j);
                for (const PartWork::Piece& x : pieces) {
                    CHECK(x.parts == static_cast<int>(pieces.size()), "%d parts", x.parts);
                    CHECK(x.begin * STEP == k, "(%d, %d): part %d from %d on, not %d", i, j, x.part,
                          x.begin, (int)(k / STEP));
                    CHECK(x.first == pieces[0].first && x.last == pieces[0].last, "(%d, %d)", i, j);
                    k = x.end * STEP;
                }
                CHECK(k >= range.begin + range.length() && k < range.begin + range.length() + STEP,
                      "(%d, %d) ends at %d", i, j, (int)k);
            }
    return lengths;
}

void long_sums_are_cut(const Product& p, int part) {
    const PartWork work = cuda::part_work(p, SIDE, part, 132);
    const std::vector<int> lengths = every_part_once(p, work);
    // But for tiles at an edge, which come with others, the longest come first. Many lengths go together.
    if (!cuda::sums_shrink(p) || p.k % SIDE > 0 || p.k > 45 * SIDE) return;
    for (size_t x = 1; x < lengths.size(); ++x)
        CHECK(lengths[x] <= lengths[x - 1],
              "kinds %d, %d, %d, sums over %d, cut every %d: %d comes before %d", (int)p.a.kind,
              (int)p.b.kind, (int)p.c.kind, (int)p.k, part, lengths[x - 1], lengths[x]);
}

// Of equally long sums those of the last tiles alone, as many as do not fill a round.
void the_rest_is_cut(int64_t k, int64_t batch, int part, int64_t slots) {
    const Product p = product(Kind::Dense, Kind::Dense, Kind::Lower, k, k, k, batch);
    const Schedule s = cuda::schedule_of(p, SIDE, 1);
    const PartWork work = cuda::part_work(p, SIDE, part, slots);
    every_part_once(p, work);
    const int64_t all = s.size() * batch, left = cuda::left_over(s, batch, slots),
                  steps = ceil_div(k, STEP);
    CHECK((all - left) % slots == 0, "%d are left", (int)left);
    const int64_t before =
        part > 0 && steps > PartWork::LEAST ? (steps - PartWork::LEAST) / part : 0;
    CHECK(work.items == all + left * before, "%d items", work.items);
}

int main() {
    const Kind kinds[] = {Kind::Lower, Kind::Upper, Kind::Dense};
    for (const int64_t k : {1, 100, 128, 130, 1152, 2000, 2048})
        for (const int64_t batch : {1, 3})
            for (const int part : {0, 1, 2, 3, 7, 11, 25, 1000}) {
                for (const Kind a : kinds)
                    for (const Kind b : kinds)
                        for (const Kind c : {Kind::Lower, Kind::Dense}) {
                            long_sums_are_cut(product(a, b, c, k, k, k, batch), part);
                            if (a == Kind::Dense)
                                long_sums_are_cut(product(a, b, c, 300, k, k, batch), part);
                            if (b == Kind::Dense)
                                long_sums_are_cut(product(a, b, c, k, 300, k, batch), part);
                        }
                for (const int slots : {1, 108, 132}) the_rest_is_cut(k, batch, part, slots);
            }
    // More lengths than there are groups for them: those that are about equally long go together.
    for (const int64_t k : {6016, 6100, 20000})
        long_sums_are_cut(product(Kind::Lower, Kind::Dense, Kind::Dense, k, 128, k, 1), 150);
    std::puts("part work: ok");
}
