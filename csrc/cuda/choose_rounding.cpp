// Which products of float32 that may be rounded to TF32 are: not those for which kernels that keep all bits are faster.
#include <cmath>

#include "choice.h"
#include "remembered.h"

namespace packedtri::cuda {
namespace {

// The order of a cube from which on it is faster to round: of one product, and of a batch that is as large all together,
// of less than MANY matrices and of more. From that number on, what keeps all bits has packed operands in shared memory
// (choose_resident.cpp).
struct Least {
    int64_t one, some, many;
};
constexpr int64_t MANY = 100;

// Of a triangle and a dense matrix. A few columns are only as slow as what is read.
Least beside_columns(const Product& p, bool aligned) {
    const int64_t narrow = narrowest(p);
    if (narrow <= 96) return {ANY, ANY, ANY};
    const int64_t many = narrow > 176 ? 460 : ANY;
    return aligned ? Least{500, 460, many} : Least{520, 800, many};
}
// The same of a symmetric one, most of which goes to dense torch.
Least symmetric_beside_columns(const Product& p, bool aligned) {
    const int64_t narrow = narrowest(p);
    if (narrow <= 32) return {ANY, 350, ANY};
    const int64_t many = narrow > 96 ? 0 : 400;
    if (!aligned) return {405, 410, many};
    return {narrow <= 64 ? 460 : 370, 335, many};
}
// Of two dense matrices, half of whose product is kept.
Least half_of_dense(const Product& p, bool aligned) {
    if (narrowest(p) <= 48) return {630, ANY, ANY};
    return aligned ? Least{370, 340, 340} : Least{370, 600, 600};
}

// From timings of an H100 (benchmarks/shares).
Least least(const Product& p) {
    const bool aligned = !slow_when_dense(p);
    if (beside_dense(p)) return symmetric_beside_columns(p, aligned);
    if (beside_triangle(p)) return aligned ? Least{550, 600, 920} : Least{520, 740, 1000};
    if (has_symmetric(p)) return {430, aligned ? 520 : 1000, 640};
    if (triangles(p) == 0) return half_of_dense(p, aligned);
    if (triangles(p) == 1) return beside_columns(p, aligned);
    return p.c.kind == Kind::Lower ? Least{680, 750, 770} : Least{580, 660, 1000};
}

bool rounding_pays(const Product& p, const Device& device, int together) {
    // Elsewhere there are no timings.
    if (!device.fast_doubles || any_forced() || !is_plain(p)) return true;
    const int64_t matrices = p.batch * together;
    const Least orders = least(p);
    const int64_t order = matrices == 1 ? orders.one : matrices < MANY ? orders.some : orders.many;
    const bool large =
        volume(p) * static_cast<double>(matrices) >= std::pow(static_cast<double>(order), 3);
    // The others take longer to ask.
    return large || is_elongated(p, device) || remembered_tf32_tiles(p, device, together) ||
           images_pay_in_batch(p, device, together);
}

}  // namespace

Product settled(const Product& p, const Device& device, int together) {
    Product as_computed = p;
    as_computed.tf32 = p.tf32 && rounding_pays(p, device, together);
    return as_computed;
}

}  // namespace packedtri::cuda
