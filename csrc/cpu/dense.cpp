// What dense torch computes faster on unpacked copies, and what structural zeros or it itself spoil there.
#include <algorithm>
#include <stdexcept>

#include "isa.h"
#include "kernels.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

// Whether torch's libraries are good at what has no instructions of its own: on processors of the maker of its BLAS. On
// others that takes a third longer than the kernels here do.
bool multiplies_fast() {
#if defined(PACKEDTRI_X86)
    static const bool is = __builtin_cpu_is("intel");
    return is;
#else
    return false;
#endif
}

// Of bfloat16, where the machine has instructions for pairs of it, which both sides use.
bool leaves_pairs(const Product& p) {
    const int64_t narrowest = std::min(p.m, p.n), longest = std::max({p.m, p.n, p.k});
    const int64_t elements = longest * narrowest * p.batch;
    const bool left = p.a.kind != Kind::Dense, packed = p.c.kind == Kind::Lower;
    // Two dense matrices with few, long rows are only read, and so are small matrices beside many columns. Those of a few
    // rows on the left are read at once here.
    if (!left && p.b.kind == Kind::Dense)
        return packed && narrowest > dots_order && narrowest <= 64 && p.k >= 6 * narrowest &&
               elements >= 200'000;
    if (!packed && longest >= 6 * p.k &&
        (left ? p.k >= 8 && p.k < 48 && elements >= 200'000 : p.k < 72 && elements >= 50'000))
        return true;
    // Else those remain in which nothing is left out and a triangle is read twice: large ones, and such with columns so few
    // that to mirror it takes most of the time. Of two triangles with a packed result half of the dense one would be thrown
    // away, or more.
    return has_symmetric(p) && !has_triangle(p) && !packed &&
           (narrowest >= kernels().pairs.dense_from ||
            (narrowest > (p.k < 400 ? 36 : 16) && narrowest < 100 && p.k >= 200 && p.k <= 2500));
}

// Who names an instruction set wants the kernels for it.
bool kernels_are_wanted() { return !wanted_isa().empty(); }

}  // namespace

Copies copies(const Product& p) {
    return copies_of(p, p.a.kind != Kind::Dense, p.b.kind != Kind::Dense, p.c.kind == Kind::Lower);
}

bool leaves_to_dense(const Product& p) {
    if (p.k == 0 || !is_plain(p) || kernels_are_wanted()) return false;
    if (copies(p).of_one() > copies_limit) return false;
    if (p.dtype == DType::bf16 && kernels().pairs.unit > 1) return leaves_pairs(p);
    const double size =
        static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    // Of float32 torch may be told to keep the bits of bfloat16 only.
    return p.dtype != DType::f32 && element_size(p.dtype) > 2 && std::min(p.m, p.n) >= 48 &&
           has_symmetric(p) && !has_triangle(p) && p.c.kind != Kind::Lower && size >= 1e7 &&
           multiplies_fast();
}

void mend(const Product& p, const Threads& threads) {
    if (p.dtype != DType::bf16) throw std::logic_error("[packedtri] only bfloat16 is mended");
    const int64_t size = p.m * p.n, count = p.batch * size;
    const auto finite = [&](int64_t begin, int64_t end) {
        return kernels().finite_bf16(at_element(p.c.data, p.dtype, begin), end - begin);
    };
    // Of all matrices at once, by threads: mostly there is nothing to be done.
    constexpr int64_t piece = 4096;
    std::atomic<bool> all_finite{true};
    for_each_run(threads, ceil_div(count, piece), piece, [&](int64_t begin, int64_t end) {
        if (!finite(begin * piece, std::min(end * piece, count))) all_finite = false;
    });
    if (all_finite) return;
    Product one = p;
    one.batch = 1;
    for (int64_t batch = 0; batch < p.batch; ++batch) {
        if (finite(batch * size, (batch + 1) * size)) continue;
        one.a.data = at_element(p.a.data, p.dtype, batch * p.a.batch_stride);
        one.b.data = at_element(p.b.data, p.dtype, batch * p.b.batch_stride);
        one.c.data = at_element(p.c.data, p.dtype, batch * size);
        mm(one, threads);
    }
}

}  // namespace packedtri::cpu
