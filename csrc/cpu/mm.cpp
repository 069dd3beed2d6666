// C = A B: which kernel, which tiles, which threads.
#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "../krange.h"
#include "isa.h"
#include "kernels.h"
#include "mm_vectors.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

// Multiplications of float32 of about ten microseconds: less than this is not worth a second thread.
constexpr int64_t worth_a_thread = 1 << 20;

// How many of them one of complex elements takes as long as.
int64_t real_multiplications(DType dtype) {
    return dtype == DType::c128 ? 8 : dtype == DType::c64 ? 4 : 1;
}

// What a matrix costs beside its multiplications, in the same unit.
constexpr int64_t matrix_overhead = 10000;

int64_t multiplications(const Product& p, const Tile& t) {
    const KRange r = k_range(p.a.kind, p.b.kind, t.i0, t.i1, t.j0, t.j1, p.k);
    return (t.i1 - t.i0) * (t.j1 - t.j0) * r.length() * real_multiplications(p.dtype);
}

// Large tiles spread the cost of packing over more arithmetic; several for each thread share the work
// evenly. Panels of the largest fill about a megabyte of cache in float32.
TileSize tile_size(const Product& p, int threads) {
    const bool bf16 = p.dtype == DType::bf16;
    const int64_t unit = bf16 ? kernels().pairs.unit : 1;
    TileSize s = bf16 ? kernels().pairs.tile : TileSize{768, 512};
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

// Up to which order a small matrix beside many columns, or rows, is multiplied without panels, which would only be copies of what
// is read but once. More rows at a time that lie far apart push each other out of the caches. Elements of 16 bits are
// converted first, as panels do it too.
int64_t most_without_panels(const Product& p, bool columns) {
    const int64_t size = element_size(p.dtype);
    if (size == 2) return columns && p.dtype == DType::f16 ? 0 : 16;
    if (!columns || p.n <= 1024) return 64;
    return p.b.row_stride * size <= 200'000 ? 24 : size == 4 ? 16 : 12;
}

constexpr int64_t slim_piece = 256;
bool is_slim(const Product& p) {
    const bool columns = p.n >= p.m;
    const Operand& dense = columns ? p.b : p.a;
    return is_plain(p) && !has_complex_elements(p.dtype) && p.c.kind == Kind::Dense &&
           dense.kind == Kind::Dense && dense.col_stride == 1 &&
           std::max(p.k, std::min(p.m, p.n)) <= most_without_panels(p, columns);
}

// By pieces that lie side by side, of several matrices at a time where they are not long.
void slim(const Product& p, const Threads& threads) {
    const Kernels& kernel = kernels();
    const int64_t length = std::max(p.m, p.n), pieces = ceil_div(length, slim_piece);
    for_each_group(threads, pieces * p.batch,
                   p.k * std::min(p.m, p.n) * std::min(length, slim_piece), [&](int64_t t) {
                       const int64_t begin = t % pieces * slim_piece;
                       kernel.mm_slim(p, t / pieces, begin, std::min(begin + slim_piece, length));
                   });
}

// How many terms of a long sum make a part, a tile of its own. That does not depend on how many threads there are, so that
// neither does the result.
int64_t part_terms(const Product& p) {
    const int64_t order = std::max(p.m, p.n);
    return order <= tiny_order && order > dots_order ? tiny_terms : 4096;
}

// Sums of many terms, of products that have few tiles. Results of 16 bits would be rounded for each part.
bool has_long_sums(const Product& p) {
    const auto fits = [](int64_t size) { return size > 0 && size <= 256; };
    return is_plain(p) && p.a.kind == Kind::Dense && p.b.kind == Kind::Dense && fits(p.m) &&
           fits(p.n) && (p.c.kind == Kind::Lower || p.c.row_stride == p.n) &&
           p.k >= 2 * part_terms(p) && element_size(p.dtype) > 2;
}

// Adds up `count` results of `length` real numbers each, which follow one another: two and two, for small errors.
template <class R>
void add_up(R* parts, int64_t count, int64_t length, R* sum) {
    for (int64_t width = 1; width < count; width *= 2)
        for (int64_t x = 0; x + width < count; x += 2 * width)
            for (int64_t e = 0; e < length; ++e)
                parts[x * length + e] += parts[(x + width) * length + e];
    std::copy_n(parts, length, sum);
}

// The parts of some matrices at a time are tasks, and then the sums of these.
void by_parts(const Product& p, const Threads& threads) {
    constexpr int64_t most_bytes = 4 << 20;
    const int64_t elements = p.c.kind == Kind::Dense ? p.m * p.n : row_start(p.m),
                  bytes = elements * element_size(p.dtype),
                  terms = std::max(part_terms(p), ceil_div(p.k, most_bytes / bytes)),
                  count = ceil_div(p.k, terms),
                  at_once = std::clamp<int64_t>(most_bytes / (count * bytes), 1, p.batch);
    const std::unique_ptr<char[]> parts(new char[at_once * count * bytes]);
    const auto from = [&](const Operand& x, int64_t batch, int64_t elements) {
        return at_element(x.data, p.dtype, batch * x.batch_stride + elements);
    };
    for (int64_t first = 0; first < p.batch; first += at_once) {
        const int64_t matrices = std::min(at_once, p.batch - first);
        for_each_group(threads, matrices * count, terms * p.m * p.n, [&](int64_t t) {
            const int64_t batch = first + t / count, k = t % count * terms;
            Product part = p;
            part.batch = 1;
            part.k = part.a.cols = part.b.rows = std::min(terms, p.k - k);
            part.a.data = from(p.a, batch, k * p.a.col_stride);
            part.b.data = from(p.b, batch, k * p.b.row_stride);
            part.c = {parts.get() + t * bytes, p.c.kind, p.n, 0};
            kernels().mm_tile(part, 0, {0, p.m, 0, p.n});
        });
        for_each_group(threads, matrices, count * elements, [&](int64_t t) {
            char* const of_one = parts.get() + t * count * bytes;
            char* const c = at_element(p.c.data, p.dtype, (first + t) * p.c.batch_stride);
            const auto add = [&](auto* x) {
                using R = std::remove_pointer_t<decltype(x)>;
                add_up(x, count, bytes / static_cast<int64_t>(sizeof(R)), reinterpret_cast<R*>(c));
            };
            if (p.dtype == DType::f64 || p.dtype == DType::c128)
                add(reinterpret_cast<double*>(of_one));
            else add(reinterpret_cast<float*>(of_one));
        });
    }
}

}  // namespace

bool turns(const ColumnBatch& x) { return 8 * x.cols <= x.n; }

void mm(const Product& p, const Threads& threads) {
    if (goes_by_vectors(p)) return mm_vectors(p, threads);
    if (p.m <= 64 && p.n <= 64 && p.k <= 256) return whole(p, threads);
    if (is_slim(p)) return slim(p, threads);
    if (has_long_sums(p)) return by_parts(p, threads);
    tiled(p, threads);
}

}  // namespace packedtri::cpu
