// What dense torch computes faster on unpacked copies, and what structural zeros or it itself spoil there.
#include <algorithm>
#include <stdexcept>

#include "isa.h"
#include "kernels.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

// What torch's libraries are good at here: by instructions for bfloat16, where the kernels here compute in
// float32 unless the machine has AMX, and on processors of the maker of its BLAS. On others that takes a third
// longer than they do.
#if defined(PACKEDTRI_X86)
bool multiplies_bf16() {
    static const bool has = __builtin_cpu_supports("avx512bf16");
    return has;
}
bool multiplies_fast() {
    static const bool is = __builtin_cpu_is("intel");
    return is;
}
#else
bool multiplies_bf16() { return false; }
bool multiplies_fast() { return false; }
#endif

// Who names an instruction set wants the kernels for it.
bool kernels_are_wanted() { return !wanted_isa().empty(); }

}  // namespace

Copies copies(const Product& p) {
    return copies_of(p, p.a.kind != Kind::Dense, p.b.kind != Kind::Dense, p.c.kind == Kind::Lower);
}

bool leaves_to_dense(const Product& p) {
    if (p.k == 0 || !is_plain(p) || kernels_are_wanted()) return false;
    const bool a = p.a.kind != Kind::Dense, b = p.b.kind != Kind::Dense,
               packed = p.c.kind == Kind::Lower, zeros = has_triangle(p);
    if (copies(p).of_one() > copies_limit) return false;
    const double size =
        static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    const int64_t narrowest = std::min(p.m, p.n);
    const bool wide = narrowest >= 48;
    if (p.dtype == DType::bf16 && multiplies_bf16()) {
        // Of two triangles half of the dense product would be thrown away, or more.
        if (zeros && packed) return false;
        // With AMX only large ones remain in which nothing is left out and a triangle is read twice.
        if (kernels().bf16_unit > 1 && (zeros || !has_symmetric(p) || narrowest < 1500))
            return false;
        // Small matrices beside many columns are only read, and so are two with few, long rows.
        const int64_t longest = std::max({p.m, p.n, p.k});
        const bool few_long_sums =
            packed && a + b == 0 && narrowest > dots_order && p.k >= 6 * narrowest;
        const bool few_rows = p.a.kind != Kind::Dense && p.k < 8;  // Which are read at once here.
        if (few_long_sums || (!packed && !few_rows && p.k < 48 && longest >= 6 * p.k))
            if (longest * narrowest * p.batch >= 200'000) return true;
        // Up to sixteen vectors the kernels for few of them are faster, where matrices are large.
        if (!wide) return !zeros && narrowest > 1 && p.k >= 400 && (p.k < 2048 || narrowest > 16);
        return size * static_cast<double>(p.batch) >= 6e6;
    }
    // Of float32 torch may be told to keep the bits of bfloat16 only.
    return p.dtype != DType::f32 && element_size(p.dtype) > 2 && wide && has_symmetric(p) &&
           !zeros && !packed && size >= 1e7 && multiplies_fast();
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
