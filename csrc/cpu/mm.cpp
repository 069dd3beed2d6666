// C = A B: which kernel, which tiles, which threads.
#include <algorithm>
#include <memory>
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

bool packed(const Operand& x) { return x.kind != Kind::Dense; }

const char* at(const Operand& x, DType t, int64_t batch) {
    return static_cast<const char*>(x.data) + batch * x.batch_stride * element_size(t);
}

char* at(const Result& x, DType t, int64_t batch) {
    return static_cast<char*>(x.data) + batch * x.batch_stride * element_size(t);
}

Kind transposed(Kind kind) {
    if (kind == Kind::Lower) return Kind::Upper;
    return kind == Kind::Upper ? Kind::Lower : kind;
}

// The product of a packed matrix and one column, or of one row and a packed matrix: the row case is
// the transpose of the column case. The transpose of a Hermitian matrix is its conjugate.
MatrixVector matrix_vector(const Product& p, int64_t batch) {
    const bool column = packed(p.a);
    const Operand& triangle = column ? p.a : p.b;
    const Operand& x = column ? p.b : p.a;
    return {p.dtype,
            column ? triangle.kind : transposed(triangle.kind),
            p.k,
            at(triangle, p.dtype, batch),
            at(x, p.dtype, batch),
            column ? x.row_stride : x.col_stride,
            at(p.c, p.dtype, batch),
            column ? p.c.row_stride : 1,
            triangle.hermitian,
            triangle.hermitian && !column};
}

// Boundaries of strips with equal shares of the triangle, strips of rows or, for T', of columns: row
// i has i + 1 elements, column i has n - i.
int64_t strip(const MatrixVector& p, int64_t s, int64_t count) {
    if (s == count) return p.n;
    const int64_t area = row_start(p.n), before = share_before(area, s, count);
    return p.kind == Kind::Upper ? p.n - row_of(area - before) : row_of(before);
}

// Memory that several threads fill, from a cache line on.
class Parts {
  public:
    explicit Parts(int64_t bytes) : memory_(new char[bytes + line]) {}
    char* data() const {
        const auto address = reinterpret_cast<uintptr_t>(memory_.get());
        return memory_.get() + (line - address % line) % line;
    }

  private:
    static constexpr int64_t line = 64;
    std::unique_ptr<char[]> memory_;
};

// Rows of a symmetric matrix add to all of y, so each strip of them has sums of its own, which are
// added in the end in an order that no thread changes.
void symmetric_strips(const Product& p, int64_t strips, const Threads& threads) {
    const Kernels& kernel = kernels();
    const int64_t bytes =
        part_stride(p.k) * std::max<int64_t>(element_size(p.dtype), sizeof(float));
    const Parts parts(p.batch * strips * bytes);
    for_each_task(threads, p.batch * strips, [&](int64_t t) {
        const MatrixVector mv = matrix_vector(p, t / strips);
        kernel.symv_part(mv, strip(mv, t % strips, strips), strip(mv, t % strips + 1, strips),
                         parts.data() + t * bytes);
    });
    for_each_task(threads, p.batch, [&](int64_t b) {
        kernel.symv_sum(matrix_vector(p, b), parts.data() + b * strips * bytes, strips);
    });
}

void vectors(const Product& p, const Threads& threads) {
    const Kernels& kernel = kernels();
    // Fewer elements are read before a second thread has started.
    constexpr int64_t strip_elements = 1 << 18, strip_columns = 1024;
    // Strips of so many rows keep the sums of a symmetric product small beside its triangle.
    constexpr int64_t strip_rows = 128;
    const Kind kind = matrix_vector(p, 0).kind;
    int64_t strips = ceil_div(row_start(p.k), strip_elements);
    if (kind == Kind::Upper) strips = std::min(strips, ceil_div(p.k, strip_columns));
    if (kind == Kind::Symmetric) strips = std::min(strips, ceil_div(p.k, strip_rows));
    if (kind == Kind::Symmetric && strips > 1) return symmetric_strips(p, strips, threads);
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
