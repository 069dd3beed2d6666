// Whether elements are finite, compiled once for each instruction set.
#include "isa.h"

namespace packedtri::cpu::PACKEDTRI_ISA {

bool finite_bf16(const void* elements, int64_t count) {
    constexpr int16_t exponent = 0x7f80;
    const auto* x = static_cast<const int16_t*>(elements);
    // The largest exponent: of these signed numbers compilers find the greatest by vectors.
    int16_t largest = 0;
    for (int64_t e = 0; e < count; ++e) {
        const auto here = static_cast<int16_t>(x[e] & exponent);
        largest = here > largest ? here : largest;
    }
    return largest != exponent;
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
