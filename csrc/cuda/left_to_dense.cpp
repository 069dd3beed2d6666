// Which problems dense torch gets, on unpacked copies, because it is faster with them.
#include "choice.h"
#include "engine_layout.h"
#include "remembered.h"

namespace packedtri::cuda {
namespace {

// Whether the sizes of a product lie between those of two cubes.
bool between(const Product& p, double least, double most) {
    return volume(p) >= least * least * least && volume(p) <= most * most * most;
}

// The same of all products of a batch together, none of which is larger than a cube of order `most`.
bool batch_between(const Product& p, double least, double most) {
    const double all = volume(p) * static_cast<double>(p.batch);
    return all >= least * least * least && between(p, 0, most);
}

// Whether a batch of 16-bit products of two dense matrices, half of each of which is kept, has so many small ones that dense
// torch fills the device with them (measured on an H200).
bool many_small_grams(const Product& p, const Device& device) {
    if (element_size(p.dtype) != 2 || !device.clusters || triangles(p) > 0 || has_symmetric(p) ||
        p.c.kind != Kind::Lower || slow_when_dense(p) || longest(p) >= 2 * narrowest(p))
        return false;
    return longest(p) <= 192 && p.batch >= (longest(p) >= 112  ? 100
                                            : longest(p) >= 96 ? 1000
                                                               : ANY);
}

// Whether a product of two dense matrices whose result is packed has too few tiles to fill the device with.
bool few_packed_tiles(const Product& p, const Device& device) {
    if (images_allowed() && dense_pair_pays(p, device)) return false;
    if (p.tf32) {
        const int most = slow_when_dense(p) ? 350 : device.clusters ? 960 : 1400;
        if (p.batch == 1) return between(p, 100, most) && !(device.clusters && p.k < 56);
        return longest(p) >= 64;
    }
    if (element_size(p.dtype) == 2) {
        if (p.batch == 1 && device.clusters)
            return between(p, longest(p) >= 900 ? 540 : 600, 2400) && p.k > 140;
        if (p.batch == 1) return between(p, 600, 2400);
        if (many_small_grams(p, device)) return true;
        return longest(p) > 128 && batch_between(p, 490, 2400);
    }
    if (has_complex_elements(p.dtype)) {
        // With short sums the time goes to storing them, twice as many dense; many small ones fill the device here.
        if (p.k < 48 && longest(p) > 256) return false;
        if (p.batch > 512 && longest(p) < 60) return false;
        if (p.dtype == DType::c128) return p.batch > 1 || longest(p) > 96;
        if (!device.clusters) return p.batch == 1 ? between(p, 0, 1024) : batch_between(p, 0, 600);
        if (p.batch == 1) return between(p, 460, 570) || between(p, 880, 1024);
        return p.batch >= 256 || (p.batch >= 24 && longest(p) > 40 && longest(p) < 170);
    }
    if (p.dtype == DType::f64) {
        if (device.clusters)
            return p.batch == 1 ? between(p, 490, 540) : p.batch >= 256 && longest(p) < 44;
        if (p.batch > 4 && longest(p) > 100 && batch_between(p, 580, 1100)) return false;
        // One of a large batch has the device's tensor cores for its few tiles from a certain size on.
        // Small tiles are slow where they are not full.
        const double most = p.batch > 1 ? 1100 : (p.m | p.n | p.k) % 64 == 0 ? 720 : 980;
        return between(p, p.batch < 256 ? 0 : 40, most);
    }
    return p.dtype == DType::f32 && !device.clusters && p.batch > 1 && p.batch <= 128 &&
           longest(p) > 20 && !batch_between(p, 340, 1100) && between(p, 0, 340);
}

// Complex ones are not multiplied by tensor cores here, but in float64 they are by dense torch.
bool slow_complex(int64_t n, int64_t vectors, int64_t batch, DType dtype, bool clusters) {
    if (dtype == DType::c128) {
        if (batch > 1) return n >= 60;
        if (vectors < 32) return n >= (vectors > 8 ? 350 : 400) && n <= 3000;
        return n >= (vectors < 100 ? 150 : 100);
    }
    if (batch > 1) return !clusters && batch <= 64 && n >= 24 && n <= 130;
    if (n > 1024) return n <= 2500 && vectors <= 160;
    // Where blocks share sums that is faster.
    if (clusters) return n >= 900 && vectors <= 100;
    if (n >= 700) return true;
    return vectors >= 100 && (n >= 300 || (n >= 200 && n % 2 == 0));
}

// The same of a triangle and a dense matrix.
bool few_tiles(const Product& p, const Device& device) {
    if (p.tf32) {
        if (device.clusters) return many_past_direct_tiles(p, device);
        if (2 * narrowest(p) < longest(p)) return false;
        return p.batch == 1 ? !slow_when_dense(p) && between(p, 330, 900)
                            : batch_between(p, 256, 16384);
    }
    const int64_t vectors = vectors_of(p);
    if (element_size(p.dtype) == 2) {
        if (const auto way = way_beside_dense(p, device)) return way == BesideDense::Dense;
        // Many of them get tiles of their own only from a certain size on (small.h).
        const bool mapped = device.clusters && maps_dense_operand(p);
        const double least = mapped ? 660 : 600;
        if (p.batch > 1) return longest(p) >= 128 && batch_between(p, least, 2200);
        // On Hopper blocks share the sums of few columns.
        const int64_t most = mapped           ? most_mapped(vectors)
                             : vectors <= 64  ? 2900
                             : vectors <= 128 ? 2100
                             : vectors <= 192 ? 1300
                                              : 1100;
        if (device.clusters && vectors <= 256 && p.k <= most) return false;
        if (mapped && volume(p) < LEAST_UNPACKED) return false;
        return between(p, least, device.clusters ? 1640 : 2200);
    }
    if (has_complex_elements(p.dtype))
        return slow_complex(p.k, vectors, p.batch, p.dtype, device.clusters);
    // Where blocks share the sums of few tiles that is faster.
    if (p.dtype != DType::f64 || device.clusters) return false;
    if (p.batch > 1) {
        const bool large =
            large_tiles_fit(p) && ceil_div(p.m, 128) * ceil_div(p.n, 128) * p.batch >= 120;
        return vectors >= 100 && between(p, 100, p.batch <= 4 ? 560 : 300) && !large;
    }
    if (vectors >= 100 && between(p, 100, 560)) return true;
    if (vectors <= 48) return p.k >= 1200 && p.k <= 2200;
    return vectors <= (vectors % 64 == 0 ? 160 : 384) && p.k >= 650 && p.k <= 1160;
}

// Whether a triangle meets its own transpose, and half of the product is kept.
bool is_gram(const Product& p) {
    return p.c.kind == Kind::Lower && triangles(p) == 2 && p.a.kind != p.b.kind &&
           p.a.data == p.b.data && p.a.batch_stride == p.b.batch_stride;
}

// Whether such a product has too few tiles. The triangle is unpacked once.
bool few_gram_tiles(const Product& p, const Device& device) {
    if (p.dtype == DType::c128)
        return between(p, p.batch < 24 ? 110 : p.batch > 64 ? 70 : 60, p.batch > 1 ? 200 : 570);
    if (p.batch == 1) return false;
    const double all = volume(p) * static_cast<double>(p.batch);
    return p.tf32 && !device.clusters && longest(p) > 200 && all <= 780.0 * 780 * 780;
}

// Whether a product is left to dense torch although no operand is symmetric.
bool middle_sized(const Product& p, const Device& device) {
    const bool slow = slow_when_dense(p);
    if (!is_plain(p) || (slow && !p.tf32)) return false;
    const int count = triangles(p);
    if (is_gram(p)) return !slow && few_gram_tiles(p, device);
    if (p.c.kind == Kind::Lower) return count == 0 && few_packed_tiles(p, device);
    if (count == 1) return few_tiles(p, device);
    if (count < 2 || slow) return false;
    if (p.tf32)
        return !device.clusters && p.batch > 1 && longest(p) > 128 && batch_between(p, 370, 16384);
    if (p.dtype == DType::c128)
        return p.batch == 1 ? between(p, 180, 1024)
                            : between(p, p.batch > 64 ? 70 : 60, p.batch < 24 ? 260 : 200);
    if (element_size(p.dtype) != 2) return false;
    if (p.batch > 1) return batch_between(p, 850, 1400) && between(p, 700, 1400);
    // On Hopper smaller ones have a kernel that is as fast, and larger ones images.
    return !device.clusters && between(p, 850, 1400);
}

// Whether the chip, which lacks the engine for TF32, multiplies float32 many times as slowly as its tensor cores do
// TF32. Those with much shared memory, for data centers, do, by their published rates; the others are as fast in both.
bool slow_without_tf32(const Product& p, const Device& device) {
    if (!p.tf32 || device.clusters || device.shared_kib <= 128 || !is_plain(p)) return false;
    return narrowest(p) >= (triangles(p) == 2 ? 1000 : 330);
}

// Whether the dense product is faster than images although these are faster than other kernels: in TF32, at middle
// sizes, which end later where both halves of a symmetric matrix are made.
bool sooner_than_images(const Product& p, const Device& device) {
    if (many_past_direct_tiles(p, device)) return true;
    if (!p.tf32 || slow_when_dense(p) || p.batch > 1) return false;
    if (beside_triangle(p)) return between(p, 330, 520);
    return !has_symmetric(p);
}

// Whether images of 16-bit symmetric matrices with aligned rows are faster than copies of them, which dense torch or kernels
// here multiply. Beside many columns, or rows, they are not.
bool images_beat_copies(const Product& p) {
    if (element_size(p.dtype) != 2 || !has_symmetric(p)) return false;
    if (beside_dense(p)) return p.k >= 4000 && vectors_of(p) > 128 && vectors_of(p) <= p.k / 8;
    return p.k >= 500 && (beside_triangle(p) || p.c.kind == Kind::Lower);
}

// Whether a batch of a hundred vectors or so each, beside one matrix, has all of them left to dense torch as those of
// one product would be.
bool leaves_joined(const Product& p, const Device& device) {
    return element_size(p.dtype) == 2 && device.clusters && goes_wide(p, device) && can_join(p) &&
           leaves_to_dense(joined(p), device);
}

// Whether a product has a kernel for small ones, which does not depend on whether it may be rounded.
bool has_small_kernel(Product p, const Device& device) {
    p.tf32 = false;
    return goes_by_fragments(p, device) || goes_by_shared_images(p, device);
}

// Whether a small packed matrix has so many columns beside it that nothing but memory bounds a dense product, while
// most of the tiles here is padding.
bool beside_many_columns(const Product& p, const Device& device) {
    if (!has_vectors(p)) return false;
    const int64_t vectors = vectors_of(p), elements = p.batch * p.k * vectors;
    const bool aligned = !slow_when_dense(p);
    // Images on Hopper are faster beside one triangle.
    const bool imaged = p.batch == 1 && triangles(p) == 1 && engine_can(p, device);
    if (p.tf32) {
        // Rows of a few elements are slow for dense torch there.
        if (p.batch == 1 && p.k <= FRAGMENT_SIDE && p.a.kind == Kind::Dense) return false;
        if (p.k <= 72) return vectors >= 6 * p.k && elements >= 1'000'000;
        if (p.k <= 136 && vectors >= 6 * p.k && elements >= 400'000) return true;
        return aligned
                   ? p.k <= (imaged ? 200 : 340) && 2 * vectors >= 3 * p.k && elements >= 1'000'000
                   : p.k <= 260 && vectors >= 4 * p.k && elements >= 10'000'000;
    }
    const bool f32 = p.dtype == DType::f32;
    if (!f32 && p.dtype != DType::c64 && has_small_kernel(p, device)) return false;
    if (element_size(p.dtype) == 2) {
        if (p.k > 136)
            return aligned && p.k <= (imaged ? 200 : 264) && vectors >= 6 * p.k &&
                   elements >= 1'000'000;
        return vectors >= 6 * p.k && elements >= 300'000;
    }
    if (p.k > 136 || vectors < 12 * p.k) return false;
    if (p.dtype == DType::c64 && p.batch > 1) return elements >= 4'000'000;
    return elements >= (p.k > 12 ? 1'000'000 : f32 ? 700'000 : 400'000);
}

// Whether the product of two dense matrices, half of which is kept, has a few tiles, each of a long sum. In batches dense
// torch does not cut sums either, and is faster only with matrices that fill no tile.
bool has_few_long_sums(const Product& p, const Device& device) {
    if (p.c.kind != Kind::Lower || p.a.kind != Kind::Dense || p.b.kind != Kind::Dense) return false;
    if (p.batch == 1) return p.n <= 600 && p.k >= 1500 && p.k >= 24 * p.n;
    if (has_complex_elements(p.dtype) || has_small_kernel(p, device)) return false;
    const bool f64 = p.dtype == DType::f64, many = p.batch >= 200 && p.k > 64,
               longer = p.batch >= 100 && p.k >= 16 * p.n;
    const int64_t most = f64 || p.tf32 ? 64 : p.dtype == DType::f32 ? 56 : longer ? 64 : 32;
    return p.batch >= (f64 ? 12 : 48) && p.n <= most && 2 * p.k >= (many ? 5 : 12) * p.n &&
           p.batch * p.n * p.k >= 150'000;
}

// Whether there is memory for the copies of one matrix. Without them 16-bit elements of a symmetric one would be those of two
// triangles, one after the other, and their sums rounded between.
bool copies_fit(const Product& p) {
    if (element_size(p.dtype) == 2 && has_symmetric(p)) return true;
    return copies(p).of_one() <= copies_limit;
}

}  // namespace

Copies copies(const Product& p) {
    const bool symmetric_alone = beside_triangle(p);
    const auto copied = [&](const Operand& x) {
        return symmetric_alone ? x.kind == Kind::Symmetric : x.kind != Kind::Dense;
    };
    return copies_of(p, copied(p.a), copied(p.b), !symmetric_alone && p.c.kind == Kind::Lower);
}

bool is_elongated(const Product& p, const Device& device) {
    return is_plain(p) && copies_fit(p) &&
           (beside_many_columns(p, device) || has_few_long_sums(p, device));
}

Product with_unpacked(const Product& p) {
    // Aligned, as copies are.
    alignas(16) static const char a[16] = {}, b[16] = {};
    Product dense = p;
    for (Operand* x : {&dense.a, &dense.b})
        if (x->kind == Kind::Symmetric)
            *x = {x == &dense.a ? a : b, Kind::Dense, x->rows, x->cols, x->cols, 1,
                  x->rows * x->cols};
    // A product of two dense matrices is quicker where both run along the sum; a real symmetric one is its own
    // transpose.
    if (p.b.kind == Kind::Symmetric && !p.b.hermitian && p.c.kind == Kind::Lower)
        std::swap(dense.b.row_stride, dense.b.col_stride);
    return dense;
}

bool goes_on_unpacked(const Product& asked, const Device& device) {
    const Product p = settled(asked, device);
    if (beside_triangle(p)) return true;
    if (!has_symmetric(p) || p.c.kind != Kind::Lower ||
        leaves_to_dense(with_unpacked(asked), device))
        return false;
    // Dense torch multiplies these copies sooner than our kernels do.
    const bool f32 = p.dtype == DType::f32 && !p.tf32;
    if (p.batch > 1) return longest(p) > 48 && !(f32 && large_tiles_fit(p));
    return p.dtype != DType::f64 || !between(p, 1600, 2300);
}

bool leaves_to_dense(const Product& asked, const Device& device) {
    if (asked.k == 0 || is_mv(asked) || any_forced() || remembered_tf32_tiles(asked, device))
        return false;
    if (is_elongated(asked, device)) return true;
    const Product p = settled(asked, device);
    if (leaves_joined(p, device)) return true;
    if (goes_by_strips(p, device) || goes_thin(p, device) || goes_wide(p, device) ||
        (has_symmetric(p) && small_side(p, device) > 0) || mirrored_pays(p, device) ||
        goes_by_fragments(p, device) || goes_resident(p, device) ||
        goes_by_shared_images(p, device) || goes_joined(p, device) || goes_by_triangles(p, device))
        return false;
    // Dense, a structural zero times an infinite or nan element is a nan: `mend` makes that good.
    const bool slow_here = slow_without_tf32(p, device);
    if (!has_symmetric(p) && !middle_sized(p, device) && !slow_here) return false;
    const bool images_compete =
        !has_ways_beside_dense(p, device) &&
        (p.dtype == DType::f32 || p.batch > 1 || slow_when_dense(p) || images_beat_copies(p));
    if (images_compete && !sooner_than_images(p, device) && by_images(choose(p, device)))
        return false;
    return copies_fit(p);
}

bool leaves_to_dense(const Solve& p) {
    if (p.batch > 1 || any_forced()) return false;
    if (3 * element_size(p.dtype) * p.n * p.n > copies_limit) return false;
    const bool packed = p.x_kind == Kind::Lower;
    if (!packed && p.m == 1) return p.n >= 192;
    // Complex products have no tensor cores here.
    if (!has_complex_elements(p.dtype) || packed) return false;
    const double size = static_cast<double>(p.n) * static_cast<double>(p.m);
    if (p.dtype == DType::c64) return p.n >= 3500 && p.m >= 512;
    return p.n >= 700 && size >= (p.n >= 3000 ? 1.5e6 : 3e6);
}

bool leaves_to_dense(const Factor& p) {
    if (p.batch > 1 || any_forced()) return false;
    if (2 * element_size(p.dtype) * p.n * p.n > copies_limit) return false;
    // Complex products have no tensor cores here.
    return p.dtype == DType::c128 ? p.n >= 160 : p.dtype == DType::c64 && p.n >= 2700;
}

}  // namespace packedtri::cuda
