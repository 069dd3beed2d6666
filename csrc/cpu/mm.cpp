// C = A B: which kernel, which tiles, which threads.
#include <algorithm>
#include <vector>

#include "../krange.h"
#include "isa.h"
#include "kernels.h"
#include "mm_vectors.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

// Multiplications of about ten microseconds: less than this is not worth a second thread.
constexpr int64_t worth_a_thread = 1 << 20;

// What a matrix costs beside its multiplications, in the same unit.
constexpr int64_t matrix_overhead = 10000;

int64_t multiplications(const Product& p, const Tile& t) {
    const KRange r = k_range(p.a.kind, p.b.kind, t.i0, t.i1, t.j0, t.j1, p.k);
    return (t.i1 - t.i0) * (t.j1 - t.j0) * r.length();
}

struct TileSize {
    int64_t rows, cols;
};

// Large tiles spread the cost of packing over more arithmetic; several for each thread share the work
// evenly. Panels of the largest fill about a megabyte of cache in float32.
TileSize tile_size(const Product& p, int threads) {
    const int64_t unit = p.dtype == DType::bf16 ? kernels().bf16_unit : 1;
    TileSize s = unit > 1 ? TileSize{512, 1024} : TileSize{768, 512};
    if (threads == 1) return s;
    const auto count = [&] { return ceil_div(p.m, s.rows) * ceil_div(p.n, s.cols) * p.batch; };
    while (count() < 3 * threads && s.rows > 48) {
        int64_t& side = s.rows > s.cols ? s.rows : s.cols;
        if (side / 2 % unit != 0) break;
        side /= 2;
    }
    return s;
}

// The tiles of one matrix, those with the most work first, so that the last to finish are small.
std::vector<Tile> tiles(const Product& p, TileSize size) {
    std::vector<Tile> result;
    for (int64_t i = 0; i < p.m; i += size.rows)
        for (int64_t j = 0; j < p.n; j += size.cols) {
            const Tile t{i, std::min(i + size.rows, p.m), j, std::min(j + size.cols, p.n)};
            if (p.c.kind == Kind::Dense || t.j0 < t.i1) result.push_back(t);
        }
    std::stable_sort(result.begin(), result.end(), [&](const Tile& x, const Tile& y) {
        return multiplications(p, x) > multiplications(p, y);
    });
    return result;
}

void tiled(const Product& p, const Threads& threads) {
    const Kernels& kernel = kernels();
    const bool small = multiplications(p, {0, p.m, 0, p.n}) * p.batch < worth_a_thread;
    const Threads used{small ? 1 : threads.count, threads.run};
    const std::vector<Tile> list = tiles(p, tile_size(p, used.count));
    const int64_t count = static_cast<int64_t>(list.size());
    for_each_task(used, count * p.batch,
                  [&](int64_t t) { kernel.mm_tile(p, t / count, list[t % count]); });
}

// Batches of small matrices: each is one tile, and a task is a run of them.
void whole(const Product& p, const Threads& threads) {
    const Kernels& kernel = kernels();
    const Tile tile{0, p.m, 0, p.n};
    const int64_t group =
        std::max<int64_t>(1, worth_a_thread / (multiplications(p, tile) + matrix_overhead));
    for_each_task(threads, ceil_div(p.batch, group), [&](int64_t t) {
        for (int64_t b = t * group; b < std::min((t + 1) * group, p.batch); ++b)
            kernel.mm_tile(p, b, tile);
    });
}

}  // namespace

bool turns(const ColumnBatch& x) { return 8 * x.cols <= x.n; }

void mm(const Product& p, const Threads& threads) {
    if (goes_by_vectors(p)) return mm_vectors(p, threads);
    if (p.m <= 64 && p.n <= 64 && p.k <= 256) return whole(p, threads);
    tiled(p, threads);
}

}  // namespace packedtri::cpu
