// float32 as sums of bfloat16, which tensor cores multiply.
#pragma once

#include <cstdint>

namespace packedtri::cuda {

// The upper 16 bits of x and of what the part before has left, which are rounded in the second part, so that what the
// six products leave out has no sign of its own. Bits that the third part leaves go to `lost`: x is smaller than 2^-109
// then, or not finite, for the nan of a difference has all bits set but the sign.
struct Bfloat16Parts {
    uint32_t bits[3];

    __device__ Bfloat16Parts(float x, uint32_t& lost) {
        constexpr uint32_t UPPER = 0xffff0000u;
#pragma unroll
        for (int p = 0; p < 3; ++p) {
            bits[p] = __float_as_uint(x) + (p == 1 ? 0x8000u : 0u);
            x -= __uint_as_float(bits[p] & UPPER);
        }
        lost |= bits[2] & ~UPPER;
    }
};

}  // namespace packedtri::cuda
