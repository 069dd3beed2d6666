// A packed matrix times one vector or a few: in strips that threads share.
#include "mm_vectors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "../index.h"
#include "isa.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

bool packed(const Operand& x) { return x.kind != Kind::Dense; }

const char* at(const Operand& x, DType t, int64_t batch) {
    return at_element(x.data, t, batch * x.batch_stride);
}

char* at(const Result& x, DType t, int64_t batch) {
    return at_element(x.data, t, batch * x.batch_stride);
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

// Boundaries of strips with equal shares of the rows that are there, strips of rows or, for T', of columns: row
// i has i + 1 elements, column i has n - i. Where the first rows are missing columns are dealt out by their number.
int64_t strip(const MatrixVector& p, int64_t s, int64_t count) {
    if (s == count) return p.n;
    if (p.kind == Kind::Upper && p.first > 0) return share_before(p.n, s, count);
    const int64_t start = row_start(p.first), area = row_start(p.n) - start,
                  before = share_before(area, s, count);
    return p.kind == Kind::Upper ? p.n - row_of(area - before) : row_of(start + before);
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

// How many strips are worth a task each.
int64_t strips_of(const MatrixVector& p) {
    // Fewer elements are read before a second thread has started.
    constexpr int64_t strip_elements = 1 << 18, strip_columns = 1024;
    // Strips of so many rows keep the sums of a symmetric product small beside its triangle.
    constexpr int64_t strip_rows = 128;
    const int64_t strips = ceil_div(row_start(p.n) - row_start(p.first), strip_elements);
    if (p.kind == Kind::Upper) return std::min(strips, ceil_div(p.n, strip_columns));
    if (p.kind == Kind::Symmetric) return std::min(strips, ceil_div(p.n - p.first, strip_rows));
    return strips;
}

// Rows of a symmetric matrix add to all of y, so each strip of them has sums of its own, which are
// added in the end in an order that no thread changes. `of` gives the product of each matrix of the batch.
template <class Of>
void symmetric_strips(const Of& of, int64_t batch, int64_t strips, const Threads& threads) {
    const Kernels& kernel = kernels();
    const MatrixVector any = of(0);
    const int64_t bytes =
        part_stride(any.n) * std::max<int64_t>(element_size(any.dtype), sizeof(float));
    const Parts parts(batch * strips * bytes);
    for_each_task(threads, batch * strips, [&](int64_t t) {
        const MatrixVector mv = of(t / strips);
        kernel.symv_part(mv, strip(mv, t % strips, strips), strip(mv, t % strips + 1, strips),
                         parts.data() + t * bytes);
    });
    for_each_task(threads, batch, [&](int64_t b) {
        kernel.symv_sum(of(b), parts.data() + b * strips * bytes, strips);
    });
}

// The same of triangles, whose strips have elements of y to themselves.
template <class Of>
void triangle_strips(const Of& of, int64_t batch, int64_t strips, const Threads& threads) {
    const Kernels& kernel = kernels();
    for_each_task(threads, batch * strips, [&](int64_t t) {
        const MatrixVector mv = of(t / strips);
        kernel.mv(mv, strip(mv, t % strips, strips), strip(mv, t % strips + 1, strips));
    });
}

void vectors(const Product& p, const Threads& threads) {
    const Kernels& kernel = kernels();
    const auto of = [&](int64_t batch) { return matrix_vector(p, batch); };
    const Kind kind = of(0).kind;
    const int64_t strips = strips_of(of(0));
    if (kind == Kind::Symmetric && strips > 1)
        return symmetric_strips(of, p.batch, strips, threads);
    if (strips == 1) {
        const Operand &triangle = packed(p.a) ? p.a : p.b, &x = packed(p.a) ? p.b : p.a;
        // A row of complex elements takes as long as some hundred real ones, however short it is.
        const int64_t elements = row_start(p.k),
                      cost = has_complex_elements(p.dtype) ? 4 * elements + 500 * p.k : elements;
        return for_each_run(threads, p.batch, cost, [&](int64_t begin, int64_t end) {
            kernel.mv_each({matrix_vector(p, begin), end - begin, triangle.batch_stride,
                            x.batch_stride, p.c.batch_stride});
        });
    }
    triangle_strips(of, p.batch, strips, threads);
}

// The same as columns of one matrix of the batch, from one vector on.
FewVectors few_vectors(const Product& p, int64_t batch, int64_t first, int64_t count) {
    const MatrixVector one = matrix_vector(p, batch);
    const bool column = packed(p.a);
    const int64_t x_vector = column ? p.b.col_stride : p.a.row_stride,
                  y_vector = column ? 1 : p.c.row_stride, size = element_size(p.dtype);
    return {p.dtype,      one.kind,     one.n,
            count,        one.triangle, static_cast<const char*>(one.x) + first * x_vector * size,
            one.x_stride, x_vector,     static_cast<char*>(one.y) + first * y_vector * size,
            one.y_stride, y_vector,     one.hermitian,
            one.conj};
}

// As much of a triangle as is worth a thread.
constexpr int64_t few_strip_elements = 1 << 15;

// One matrix of the batch times as many vectors as a panel has side by side.
void few(const FewVectors& vectors, int64_t width, const Threads& threads) {
    const Kernels& kernel = kernels();
    // As many columns as stay in the first cache.
    constexpr int64_t strip_bytes = 1 << 15;
    const MatrixVector shape{
        vectors.dtype, vectors.kind, vectors.n, nullptr, nullptr, 0, nullptr, 0};
    const int64_t number = std::max<int64_t>(element_size(vectors.dtype), sizeof(float));
    const int64_t bytes = vectors.n * width * number;
    int64_t strips = std::min<int64_t>(ceil_div(row_start(vectors.n), few_strip_elements),
                                       4 * int64_t{threads.count});
    // As many for each thread.
    if (strips > 1) strips = ceil_div(strips, threads.count) * threads.count;
    if (vectors.kind == Kind::Upper) strips = std::max(strips, ceil_div(bytes, strip_bytes));
    // Rows of a symmetric matrix add to all of y, so that each strip has sums of its own. All of them are to take no
    // more than half of what the triangle takes.
    int64_t parts = 1;
    if (vectors.kind == Kind::Symmetric) {
        const int64_t triangle = row_start(vectors.n) * element_size(vectors.dtype);
        parts = strips = std::clamp<int64_t>(triangle / 2 / bytes, 1, strips);
    }
    const Parts panels((1 + parts) * bytes);
    char* y = panels.data() + bytes;
    kernel.few_load(vectors, panels.data());
    if (parts == 1) std::memset(y, 0, static_cast<size_t>(bytes));
    for_each_task(threads, strips, [&](int64_t s) {
        char* part = parts == 1 ? y : y + s * bytes;
        if (parts > 1) std::memset(part, 0, static_cast<size_t>(bytes));
        kernel.few_part(vectors, panels.data(), strip(shape, s, strips),
                        strip(shape, s + 1, strips), part);
    });
    constexpr int64_t rows = 1024;
    for_each_task(threads, ceil_div(vectors.n, rows), [&](int64_t t) {
        kernel.few_sum(vectors, y, parts, t * rows, std::min((t + 1) * rows, vectors.n));
    });
}

void few(const Product& p, const Threads& threads) {
    const Kind kind = matrix_vector(p, 0).kind;
    const auto width = [&](int64_t vectors) { return kernels().few_width(p.dtype, kind, vectors); };
    const int64_t count = packed(p.a) ? p.n : p.m, most = width(count),
                  panels = ceil_div(count, most);
    // Threads take panels as a whole where a matrix is not worth several, or where there are panels for all of them and
    // the matrix stays in the cache of each.
    const int64_t tasks = p.batch * panels, elements = row_start(p.k);
    constexpr int64_t cache = 1 << 20;
    const bool apart = elements <= few_strip_elements ||
                       (tasks >= threads.count && elements * element_size(p.dtype) <= cache);
    const Threads inside{apart ? 1 : threads.count, threads.run};
    for_each_task({apart ? threads.count : 1, threads.run}, tasks, [&](int64_t t) {
        const int64_t first = t % panels * most, here = std::min(most, count - first);
        few(few_vectors(p, t / panels, first, here), width(here), inside);
    });
}

// The order from which a packed matrix times so many vectors is faster by reading each element once for every few of
// them than by panels of the matrix: sooner where panels would be transposed, or of both halves, and where a row
// of vectors has two registers, which halves the reads. Measured with AVX2 and AVX-512.
int64_t few_from(DType dtype, Kind kind, int64_t count) {
    constexpr int64_t never = std::numeric_limits<int64_t>::max();
    const auto width = [&](Kind of, int64_t vectors) {
        return kernels().few_width(dtype, of, vectors);
    };
    const int64_t lanes = width(kind, 1), registers = ceil_div(count, lanes);
    const bool has_two = width(Kind::Lower, 2 * lanes) > lanes,
               complex = has_complex_elements(dtype);
    const bool symmetric = kind == Kind::Symmetric;
    // Triangles beyond the caches.
    const int64_t large = row_of((int64_t{16} << 20) / element_size(dtype));
    // Panels of 16-bit elements are converted as they are packed.
    if (element_size(dtype) == 2 && kind == Kind::Lower) return registers <= 4 ? large : never;
    if (registers <= 1) return complex ? 64 : 128;
    if (symmetric && registers <= 2) return 128;
    if (registers > 8) return never;
    if (symmetric) return complex ? 128 : registers <= 4 ? 256 : large;
    if (has_two && complex) return 128;
    if (has_two) return registers <= 2 ? (kind == Kind::Upper ? 512 : 1024) : large;
    return kind == Kind::Upper && registers <= 4 ? 128 : never;
}

// Whether a product is one of a packed matrix and few vectors.
bool goes_few(const Product& p) {
    if (packed(p.a) == packed(p.b) || !is_plain(p) || p.c.kind != Kind::Dense) return false;
    return p.k >= few_from(p.dtype, matrix_vector(p, 0).kind, packed(p.a) ? p.n : p.m);
}

bool has_one_vector(const Product& p) {
    const bool vector = (packed(p.a) && p.b.kind == Kind::Dense && p.n == 1) ||
                        (packed(p.b) && p.a.kind == Kind::Dense && p.m == 1);
    return vector && p.c.kind == Kind::Dense && p.beta == 0;
}

}  // namespace

bool goes_by_vectors(const Product& p) { return has_one_vector(p) || goes_few(p); }

void mm_vectors(const Product& p, const Threads& threads) {
    has_one_vector(p) ? vectors(p, threads) : few(p, threads);
}

void multiply_rows(const RowsVector& p, const Threads& threads) {
    const auto of = [&](int64_t b) {
        return MatrixVector{p.dtype,
                            p.kind,
                            p.n,
                            at_element(p.triangle, p.dtype, b * p.triangle_batch_stride),
                            at_element(p.x, p.dtype, b * p.x_batch_stride),
                            1,
                            at_element(p.y, p.dtype, b * p.n),
                            1,
                            p.hermitian,
                            false,
                            p.first};
    };
    const int64_t strips = strips_of(of(0));
    if (p.kind == Kind::Symmetric) return symmetric_strips(of, p.batch, strips, threads);
    if (p.kind == Kind::Lower)
        for (int64_t b = 0; b < p.batch; ++b)
            std::memset(at_element(p.y, p.dtype, b * p.n), 0,
                        static_cast<size_t>(p.first * element_size(p.dtype)));
    triangle_strips(of, p.batch, strips, threads);
}

}  // namespace packedtri::cpu
