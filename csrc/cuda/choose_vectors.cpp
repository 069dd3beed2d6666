// The kernels for a packed operand and a dense one of a few vectors, or of a hundred or so.
#include <algorithm>
#include <iterator>

#include "choice.h"
#include "engine_layout.h"
#include "strip_units.h"
#include "wide_units.h"

namespace packedtri::cuda {
namespace {

// Whether a product has the kernel for few vectors. A symmetric operand is read for each of its halves, and
// sums of 16-bit elements would be rounded between.
bool thin_can(const Product& p) {
    return !has_complex_elements(p.dtype) && has_vectors(p) && p.k > 0 &&
           !(element_size(p.dtype) == 2 && has_symmetric(p));
}

// Up to how many vectors the kernel for few is faster, of one triangle of float32 or float64 of up to 512 rows (measured on
// an H200): small tiles, whose sums blocks share, take as long for one vector as for 64.
int64_t most_thin_of_small(const Product& p) {
    const int64_t n = p.k;
    const bool f64 = p.dtype == DType::f64;
    if (!sums_along_rows(p)) {
        if (n <= 100) return f64 ? 64 : 4;
        if (n < 300) return 4;
        return f64 ? 16 : n <= 470 ? 64 : 32;
    }
    if (n <= 150) return 128;
    if (f64) return n <= 460 ? 32 : 16;
    return n < 450 ? 4 : 32;
}

// The same of all products (measured on an H100). It has them by 16, of float64
// by 8 and of 16-bit elements by 32, and reads the packed operand for each such group.
int64_t most_thin(const Product& p, const Device& device) {
    const int64_t n = p.k, rows = n * p.batch;
    if (has_symmetric(p)) return n >= (p.dtype == DType::f32 ? 800 : 1500) ? 16 : 0;
    // Many small products fill the device with one block each (small.h).
    if (p.batch >= 128 && n <= 128) return 0;
    if (element_size(p.dtype) == 2) {
        // The kernel for small tiles is as fast, and faster where sums run down columns; but it does not
        // read rows of less than a word.
        const bool short_rows = p.a.kind != Kind::Dense && p.n < 8;
        if (n < 768) return short_rows && n >= 128 && sums_along_rows(p) ? 8 : 0;
        // On Hopper blocks share the sums of those tiles, which are faster where the vectors are aligned.
        const bool aligned = maps_dense_operand(p),
                   shared = device.clusters && (n < (aligned ? 1300 : 1150) ||
                                                (aligned && n >= 2000 && n <= MOST_SHARED));
        if (shared || (n < 3000 && !sums_along_rows(p))) return short_rows ? 8 : 0;
        if (n < 3000) return 16;
        if (n < 6000) return p.a.kind == Kind::Dense && !sums_along_rows(p) ? 16 : 32;
        return 64;
    }
    if (p.batch == 1 && n <= 512) return most_thin_of_small(p);
    // Few blocks have a multiprocessor each.
    if (rows <= (p.dtype == DType::f32 ? 512 : 256)) return 128;
    if (p.dtype == DType::f64 && n <= 64 && rows <= 512) return 64;
    if (rows <= (p.dtype == DType::f32 ? 1024 : 512) || (p.dtype == DType::f64 && n <= 32))
        return 32;
    return n < (p.dtype == DType::f32 ? 3000 : 6000) ? 16 : 32;
}

// Whether a product can be computed by strips: there has to be room for the sums that are added up at last.
bool strips_can(const Product& p, const Device& device) {
    if (has_complex_elements(p.dtype)) return false;
    if (!has_vectors(p) || is_mv(p) || !device.clusters) return false;
    if (p.k == 0 || p.k > STRIP_ORDER) return false;
    // Of 16-bit triangles each element has one product.
    if (element_size(p.dtype) == 2 && !has_symmetric(p)) return false;
    const int64_t vectors = strip_vectors(p), matrices = ceil_div(vectors_of(p), vectors) * p.batch;
    const StripSums sums = strip_sums(strip_units(p.k), matrices, device.multiprocessors,
                                      adds_rows(p), adds_columns(p));
    const int64_t size = std::max<int64_t>(element_size(p.dtype), 4);
    return sums.all() * vectors * size <= device.scratch;
}

// Which of ascending limits is the first that so many vectors keep to.
template <size_t COUNT>
int64_t bucket(const int64_t (&limits)[COUNT], int64_t vectors) {
    return std::lower_bound(std::begin(limits), std::end(limits), vectors) - std::begin(limits);
}

// Up to so many vectors, from which order on strips are faster than the other kernels and than dense torch on unpacked
// copies. FEW of a symmetric matrix are so below the order MIDDLE, too.
constexpr int64_t NEVER = INT64_MAX, STRIP_VECTORS[] = {4, 8, 16, 32}, FEW = 8, MIDDLE = 1300;
struct StripOrders {
    int64_t least[4];
    int64_t few;  // For FEW below MIDDLE.
    // Of batches of at least 8000 rows: from so many vectors and this order on.
    int64_t least_vectors, in_batch;
};
// Measured on an H200 at orders of 256 to 12288.
constexpr StripOrders STRIPS_F32[] = {
    {{NEVER, 2300, 880, 1000}, NEVER, 9, 900},
    {{NEVER, 2300, 2300, NEVER}, NEVER, 17, 1000},
    {{2300, 2300, 2300, NEVER}, NEVER, 2, 500},
};
constexpr StripOrders STRIPS_F64[] = {
    {{NEVER, 970, 800, 830}, NEVER, 5, 250},
    {{NEVER, 2500, 2500, 2000}, NEVER, 9, 500},
    {{2500, 700, 1000, 2000}, 700, 2, 500},
};

// Whether a symmetric matrix, of one product, can be read from an image of its half, by small tiles.
bool half_image_has_room(const Product& p, const Device& device) {
    if (!images_allowed() || p.batch > 1 || p.k < least_half_image(p) || !engine_can(p, device))
        return false;
    return images_have_room(p, {Method::Engine, TileSize::Small, 1, 1, 1}, device);
}

bool strips_pay(const Product& p) {
    const int64_t n = p.k, vectors = vectors_of(p);
    const bool both = has_symmetric(p), f64 = p.dtype == DType::f64;
    if (vectors > 32) return false;
    // A symmetric matrix, whose elements are loaded once for two products. Of smaller ones the kernel for a hundred vectors
    // loads them twice sooner.
    if (element_size(p.dtype) == 2)
        return p.batch == 1 ? n >= 3500 : n >= 1000 && n * p.batch >= 8000;
    const int sums = both ? 2 : adds_rows(p) ? 0 : 1;
    const StripOrders& orders = (f64 ? STRIPS_F64 : STRIPS_F32)[sums];
    // Of symmetric matrices of float32 fewer rows are enough, and the kernel for few vectors has those of many.
    const bool mirrored = both && !f64;
    const int64_t rows = n * p.batch,
                  least = mirrored && n >= 800 && rows >= 12000 ? FEW + 1 : orders.least_vectors;
    if (p.batch > 1 && (rows >= 8000 || (mirrored && n >= 700 && rows >= 3000)) &&
        n >= orders.in_batch && vectors >= least)
        return true;
    if (p.batch > 1 && n < 2500) return false;
    if (vectors <= FEW && n >= orders.few && n < MIDDLE) return true;
    return n >= orders.least[bucket(STRIP_VECTORS, vectors)];
}

// Whether a product can have the kernel for a hundred vectors or so: there has to be room for the sums that are added up at
// last.
bool wide_can(const Product& p, const Device& device) {
    if (!device.clusters || !has_vectors(p)) return false;
    if (has_complex_elements(p.dtype)) return false;
    if (p.k == 0 || p.k > STRIP_ORDER) return false;
    const WideUnits units{static_cast<int>(ceil_div(p.k, WIDE_SIDE)), adds_rows(p),
                          adds_columns(p)};
    const int64_t vectors = wide_vectors(p), matrices = ceil_div(vectors_of(p), vectors) * p.batch;
    const int64_t bytes = std::max<int64_t>(element_size(p.dtype), 4) * vectors;
    // Before what many matrices need is more than an integer holds.
    if (matrices > device.scratch / (WIDE_SIDE * bytes)) return false;
    return wide_sums(units, matrices, device.multiprocessors) * bytes <= device.scratch;
}

// Whether it is faster than the others and than dense torch on unpacked copies (measured on an H200 at orders of 128 to
// 12288): small tiles share the sums of fewer steps, and tile images multiply more vectors sooner.
bool wide_pays_of_batch(const Product& p) {
    const int64_t n = p.k, vectors = vectors_of(p), elements = n * n * p.batch;
    // One triangle for all of them would be read again for each.
    if (n < 2000 && packed_operand(p).batch_stride == 0) return false;
    if (has_symmetric(p)) {
        if (vectors > 128) return false;
        const bool many = elements >= int64_t{64} << 20;
        return n >= (vectors <= 8 || (vectors <= 64 && many) ? 1000 : 1500);
    }
    if (vectors <= 8) return n >= 1000 && p.batch <= (sums_along_rows(p) ? 4 : 16);
    return vectors <= 64 && n >= (vectors <= 16 ? 1000 : 500) && elements >= int64_t{16} << 20;
}

// The same of float32, where strips, few vectors and tile images are the others (measured on an H200 at orders of 256 to
// 12288): from which order on up to so many vectors.
constexpr int64_t WIDE_VECTORS[] = {4, 16, 32, 64, 128, 256, 384};
struct WideOrders {
    int64_t alone[7], in_batch[7];
};
constexpr WideOrders WIDE_TRIANGLES{{NEVER, 3800, 1250, 1500, 1400, 1250, 2000},
                                    {NEVER, 2500, NEVER, 1000, 700, NEVER, NEVER}},
    WIDE_SYMMETRIC{{NEVER, NEVER, 2200, 1100, 1000, 1950, NEVER},
                   {NEVER, NEVER, NEVER, 500, 1500, NEVER, NEVER}};

bool wide_pays_of_float(const Product& p, const Device& device) {
    const int64_t n = p.k, vectors = vectors_of(p), rows = n * p.batch;
    const bool symmetric = has_symmetric(p);
    if (p.tf32 || vectors > 384) return false;
    const WideOrders& orders = symmetric ? WIDE_SYMMETRIC : WIDE_TRIANGLES;
    if (p.batch > 1) {
        if (packed_operand(p).batch_stride == 0) return false;
        // Many rows fill the device, of symmetric matrices by strips and tile images too.
        if (vectors > 16 && vectors <= 32)
            return n >= (symmetric ? (rows < 8000 ? 500 : 700) : (rows < 6000 ? 1500 : 700));
        if (symmetric && vectors > 64 && vectors <= (rows < 8000 ? 128 : 100)) return n >= 700;
        return n >= orders.in_batch[bucket(WIDE_VECTORS, vectors)];
    }
    // Of some orders an image of half of it, as of 16-bit elements, is faster.
    if (symmetric && vectors > 128 && n >= 3300 && n < 4600 && half_image_has_room(p, device))
        return false;
    return n >= orders.alone[bucket(WIDE_VECTORS, vectors)];
}

// The same of float64, against tiles whose sums are cut, one triangle after the other, and dense torch on copies (measured on
// an H200 at orders of 256 to 12288). Of a single triangle those tiles are as fast.
bool wide_pays_of_double(const Product& p) {
    const int64_t n = p.k, vectors = vectors_of(p);
    if (!has_symmetric(p) || vectors <= 32) return false;
    if (p.batch > 1) {
        if (packed_operand(p).batch_stride == 0 || vectors > 128) return false;
        return n >= 1200 || (vectors <= 64 && n >= 700 && n * p.batch >= 3000);
    }
    if (vectors <= 64) return n >= 1100;
    if (vectors <= 128) return n >= 2200;
    // The last one of the groups of 128 must be more than half full.
    return vectors <= 384 && (vectors - 1) / 64 % 2 == 1 && n >= (vectors <= 256 ? 2500 : 3000);
}

bool wide_pays(const Product& p, const Device& device) {
    if (p.dtype == DType::f32) return wide_pays_of_float(p, device);
    if (p.dtype == DType::f64) return wide_pays_of_double(p);
    if (p.batch > 1) return wide_pays_of_batch(p);
    const int64_t n = p.k, vectors = vectors_of(p);
    if (vectors > 256) return false;
    if (has_symmetric(p)) {
        // Images of half of it, which are read as it is and transposed, are faster beside many aligned vectors.
        if (n >= 4000 && vectors > 128 && !slow_when_dense(p) && half_image_has_room(p, device))
            return false;
        // It reads the triangle twice, which takes as long as to unpack it where there are few rows beside many vectors.
        if (n >= 5600 || (n >= 2000 && slow_when_dense(p))) return true;
        if (n >= 2000) return vectors <= (n < 2300 ? 64 : 128);
        // Other kernels bring these in line element by element.
        if (vectors > 64 && !maps_dense_operand(p)) return n >= 1000;
        if (n >= 1400) return vectors <= 4;
        return n >= (vectors <= 4 ? 1000 : 750) && vectors <= 16;
    }
    if (vectors <= 4) return n >= (sums_along_rows(p) ? 1800 : 1000);
    if (vectors <= 16) return n >= 1200;
    return n >= (vectors <= 64 ? 2300 : vectors <= 128 ? 2700 : vectors <= 192 ? 4300 : 2000);
}

}  // namespace

bool goes_thin(const Product& p, const Device& device) {
    if (!thin_can(p)) return false;
    return forced.method < 0 ? vectors_of(p) <= most_thin(p, device) : is_forced(Method::Thin);
}

bool goes_wide(const Product& p, const Device& device) {
    return wide_can(p, device) &&
           (forced.method < 0 ? wide_pays(p, device) : is_forced(Method::Wide));
}

bool turns(const ColumnBatch& x, const Device& device) {
    const bool small = element_size(x.dtype) == 2;
    // Dense torch, which these may be left to, is fast with them.
    if (small && x.cols > 16 && x.n < 2048) return false;
    const auto bytes = [&](int64_t elements) {
        return static_cast<double>(elements) * static_cast<double>(element_size(x.dtype));
    };
    // A symmetric matrix counts twice, as most kernels read it. A single column is a row as it lies.
    const double matrix = bytes(row_start(x.n)) * (is_triangular(x.kind) ? 1 : 2),
                 spared = matrix * static_cast<double>(x.count - 1),
                 copied = x.cols == 1 ? 0 : 4 * bytes(x.n * x.cols * x.count);
    if (spared < (small ? 6e6 : 12e6) || spared < (small ? 4 : x.n <= 128 ? 1 : 2) * copied)
        return false;
    // Tile images need no copies for that.
    Product p{x.dtype,
              x.n,
              x.cols,
              x.n,
              x.count,
              {nullptr, x.kind, x.n, x.n, 0, 0, 0},
              {nullptr, Kind::Dense, x.n, x.cols, x.cols, 1, x.n * x.cols},
              {nullptr, Kind::Dense, x.cols, x.n * x.cols}};
    p.tf32 = x.tf32;
    return !goes_joined(settled(p, device), device);
}

bool goes_by_strips(const Product& p, const Device& device) {
    return strips_can(p, device) &&
           (forced.method < 0 ? strips_pay(p) && !mirrored_pays(p, device) &&
                                    !(p.dtype == DType::f32 && goes_wide(p, device))
                              : is_forced(Method::Strips));
}

std::pair<Product, Product> halves(const Product& p) {
    Operand Product::* const symmetric = p.a.kind == Kind::Symmetric ? &Product::a : &Product::b;
    std::pair<Product, Product> both{p, p};
    (both.first.*symmetric).kind = Kind::Lower;
    (both.second.*symmetric).kind = Kind::Upper;
    (both.second.*symmetric).strict = true;
    both.second.beta = 1;
    return both;
}

bool goes_by_triangles(const Product& p, const Device& device) {
    if (p.dtype != DType::f64 || !has_symmetric(p) || !device.clusters) return false;
    if (forced.method == BY_TRIANGLES) return true;
    if (any_forced() || !has_vectors(p) || goes_wide(p, device)) return false;
    // A copy for dense torch takes as long as half of the product (measured on an H200), unless it is one for a whole batch.
    if (p.batch > 1 && packed_operand(p).batch_stride == 0) return false;
    const int64_t vectors = vectors_of(p);
    return vectors > 32 && vectors <= 600 && p.k >= 3600;
}

}  // namespace packedtri::cuda
