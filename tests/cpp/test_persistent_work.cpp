// What blocks draw that go from tile to tile: every part of every sum exactly once, the longest parts no longer than
// asked for.
#include "cuda/persistent_work.h"

#include <vector>

#include "check.h"
#include "krange.h"

using namespace packedtri;
using cuda::PersistentWork;
using cuda::Schedule;

// Every tile has all its parts, which follow one another, and its first part is where they say.
void every_part_once(const Schedule& s, int64_t batch, const PersistentWork& work) {
    std::vector<int> parts(s.size() * batch), seen(s.size() * batch);
    int cut = 0;
    for (int number = 0; number < work.items; ++number) {
        const PersistentWork::Item item = work.at(number);
        CHECK(item.tile >= 0 && item.tile < s.size() * batch, "tile %d", item.tile);
        CHECK(item.part == seen[item.tile] && item.first == number - item.part, "part %d of %d",
              item.part, item.parts);
        CHECK(item.part == 0 || item.parts == parts[item.tile], "%d parts", item.parts);
        CHECK(item.parts <= PersistentWork::MOST_PARTS, "%d parts", item.parts);
        parts[item.tile] = item.parts;
        ++seen[item.tile];
        if (item.parts == 1) continue;
        CHECK(number == work.first_part + cut, "parts follow one another, %d", number);
        ++cut;
    }
    CHECK(cut == work.part_count, "%d parts", cut);
    for (size_t tile = 0; tile < seen.size(); ++tile)
        CHECK(seen[tile] > 0 && seen[tile] == parts[tile], "tile %d came %d times", (int)tile,
              seen[tile]);
}

// Sums of at least `above` tiles, and no others, have parts that are shorter, or as many as there may be.
void long_sums_are_cut(Kind a, Kind b, bool lower, int tiles, int64_t batch, int most, int above) {
    const Schedule s{tiles, tiles, 1, lower, cuda::longest_first(a, b)};
    const PersistentWork work = cuda::persistent_work(s, batch, tiles, most, above, 132);
    every_part_once(s, batch, work);
    most = std::min(most, PersistentWork::MOST_PARTS);
    for (int number = 0; number < work.items; ++number) {
        const PersistentWork::Item item = work.at(number);
        const Schedule::Tile t = s.at(item.tile / batch);
        if (!t.exists) continue;
        const int length =
            static_cast<int>(k_range(a, b, t.i, t.i + 1, t.j, t.j + 1, tiles).length());
        const int needed = above > 1 ? (length + above - 2) / (above - 1) : most;
        CHECK(item.parts == std::max(1, std::min(needed, most)),
              "kinds %d, %d, sums of %d in up to %d: one of %d in %d", (int)a, (int)b, above, most,
              length, item.parts);
    }
}

// Of equally long sums those of the last tiles alone, as many as do not fill a round.
void the_rest_is_cut(int tiles, int64_t batch, int most, int multiprocessors) {
    const Schedule s{tiles, tiles, 1, true, Schedule::Longest::All};
    const PersistentWork work = cuda::persistent_work(s, batch, tiles, most, 1, multiprocessors);
    every_part_once(s, batch, work);
    const int64_t all = s.size() * batch, left = cuda::left_over(s, batch, multiprocessors);
    CHECK((all - left) % multiprocessors == 0, "%d are left", (int)left);
    CHECK(work.part_count == (most > 1 ? left * most : 0), "%d parts", work.part_count);
    CHECK(work.items == all - left + left * most, "%d items", work.items);
}

int main() {
    for (const int tiles : {1, 2, 9, 16})
        for (const int64_t batch : {1, 3})
            for (const int most : {1, 2, 3, 8, 16}) {
                for (const int above : {1, 2, 3, 9}) {
                    long_sums_are_cut(Kind::Lower, Kind::Lower, true, tiles, batch, most, above);
                    for (const bool lower : {false, true})
                        for (const Kind triangle : {Kind::Lower, Kind::Upper}) {
                            long_sums_are_cut(triangle, Kind::Dense, lower, tiles, batch, most,
                                              above);
                            long_sums_are_cut(Kind::Dense, triangle, lower, tiles, batch, most,
                                              above);
                        }
                }
                if (most <= PersistentWork::MOST_PARTS)
                    for (const int multiprocessors : {1, 108, 132})
                        the_rest_is_cut(tiles, batch, most, multiprocessors);
            }
    std::puts("persistent work: ok");
}
