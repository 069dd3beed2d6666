// C = A B: which kernel, which tiles, which threads.
#include <algorithm>
#include <vector>

#include "../index.h"
#include "../krange.h"
#include "isa.h"
#include "kernels.h"
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

// Large tiles spread the cost of packing over more arithmetic; small ones share the work evenly.
// Panels of the largest fill about three quarters of a megabyte of cache.
TileSize tile_size(const Product& p, int threads) {
    TileSize s{384, 512};
    if (threads == 1) return s;
    const auto count = [&] { return ceil_div(p.m, s.rows) * ceil_div(p.n, s.cols) * p.batch; };
    while (count() < 12 * threads && s.rows > 48) s = {s.rows / 2, s.cols / 2};
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

bool packed(const Operand& x) { return x.kind == Kind::Lower || x.kind == Kind::Upper; }

const char* at(const Operand& x, DType t, int64_t batch) {
    return static_cast<const char*>(x.data) + batch * x.batch_stride * element_size(t);
}

char* at(const Result& x, DType t, int64_t batch) {
    return static_cast<char*>(x.data) + batch * x.batch_stride * element_size(t);
}

// The product of a packed triangle and one column, or of one row and a packed triangle: the row
// case is the transpose of the column case.
MatrixVector matrix_vector(const Product& p, int64_t batch) {
    const bool column = packed(p.a);
    const Operand& triangle = column ? p.a : p.b;
    const Operand& x = column ? p.b : p.a;
    return {p.dtype,
            (triangle.kind == Kind::Upper) == column,
            p.k,
            at(triangle, p.dtype, batch),
            at(x, p.dtype, batch),
            column ? x.row_stride : x.col_stride,
            at(p.c, p.dtype, batch),
            column ? p.c.row_stride : 1};
}

// Boundaries of strips of y with equal shares of the triangle: element i of y = T x costs i + 1,
// of y = T' x n - i.
int64_t strip(const MatrixVector& p, int64_t s, int64_t count) {
    if (s == count) return p.n;
    const int64_t area = row_start(p.n);
    return p.transposed ? p.n - row_of(area - area * s / count) : row_of(area * s / count);
}

void vectors(const Product& p, const Threads& threads) {
    const Kernels& kernel = kernels();
    // Fewer elements are read before a second thread has started.
    constexpr int64_t strip_elements = 1 << 18, strip_columns = 1024;
    int64_t strips = ceil_div(row_start(p.k), strip_elements);
    if (matrix_vector(p, 0).transposed) strips = std::min(strips, ceil_div(p.k, strip_columns));
    for_each_task(threads, p.batch * strips, [&](int64_t t) {
        const MatrixVector mv = matrix_vector(p, t / strips);
        kernel.mv(mv, strip(mv, t % strips, strips), strip(mv, t % strips + 1, strips));
    });
}

}  // namespace

void mm(const Product& p, const Threads& threads) {
    const bool vector = (packed(p.a) && p.b.kind == Kind::Dense && p.n == 1) ||
                        (packed(p.b) && p.a.kind == Kind::Dense && p.m == 1);
    if (vector && p.c.kind == Kind::Dense && p.beta == 0) return vectors(p, threads);
    if (p.m <= 64 && p.n <= 64 && p.k <= 256) return whole(p, threads);
    tiled(p, threads);
}

}  // namespace packedtri::cpu
