#include "../index.h"
#include "kernels.h"

namespace packedtri::cpu {
namespace {

// Zeros have no bits but a sign. A complex number is two reals.
template <class Bits>
int32_t first_zero(const Bits* packed, int64_t n, int reals) {
    const auto is_zero = [](Bits x) { return static_cast<Bits>(x << 1) == 0; };
    for (int64_t i = 0; i < n; ++i) {
        const Bits* x = packed + offset(i, i) * reals;
        if (is_zero(x[0]) && is_zero(x[reals - 1])) return static_cast<int32_t>(i + 1);
    }
    return 0;
}

}  // namespace

void first_zero(const FirstZero& p) {
    const bool is_complex = has_complex_elements(p.dtype);
    const int reals = is_complex ? 2 : 1;
    const int64_t bytes = element_size(p.dtype) / reals;
    for (int64_t b = 0; b < p.batch; ++b) {
        const char* packed =
            static_cast<const char*>(p.packed) + b * p.batch_stride * element_size(p.dtype);
        const auto search = [&](auto bits) {
            return first_zero(reinterpret_cast<const decltype(bits)*>(packed), p.n, reals);
        };
        p.info[b] = bytes == 2   ? search(uint16_t{})
                    : bytes == 4 ? search(uint32_t{})
                                 : search(uint64_t{});
    }
}

}  // namespace packedtri::cpu
