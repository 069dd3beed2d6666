// How the kernel for strips (strips.cuh) multiplies elements of 2 bytes.
#pragma once

#include <type_traits>

#include "strip_tile.cuh"

namespace packedtri::cuda {

template <class T, int VECTORS>
struct StripMath<T, VECTORS, std::enable_if_t<sizeof(T) == 2>> {
    static constexpr int STAGES = 4;
    // Of the rows of a tile: a warp reads an element of each of 8 rows and 4 columns, or of 4 rows and 8 columns, from
    // different banks.
    static constexpr int PITCH = STRIP_TILE<T> + 8;
    // Tensor cores multiply nan and infinity like any other number.
    static constexpr bool NEEDS_ORDINARY = false;

    // As in float32.
    template <int K>
    struct Vectors {
        alignas(16) T at[VECTORS][K + 16];

        // Four elements that are 4 steps apart. Returns whether tensor cores can multiply them with zeros.
        __device__ bool put(int k, int c, const T (&x)[4]) {
            struct alignas(8) Four {
                T x[4];
            };
            *reinterpret_cast<Four*>(&at[c][k / 16 * 16 + k % 4 * 4]) = {{x[0], x[1], x[2], x[3]}};
            return finite(x[0]) && finite(x[1]) && finite(x[2]) && finite(x[3]);
        }
        __device__ void read(uint32_t (&b)[2], int k, int c, int t) const {
            const uint2 four = *reinterpret_cast<const uint2*>(&at[c][k + 4 * t]);
            b[0] = four.x, b[1] = four.y;
        }
    };

    // As in float64.
    template <bool ALONG, int CHAINS, bool PARTLY, int K>
    __device__ static bool multiply(float (&acc)[VECTORS / 8][4], StripTile<T, PITCH> tile,
                                    const Vectors<K>& x, int k0, const StripBlock& block) {
        const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        uint32_t a[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const unsigned out = g + e % 2 * 8;
            const auto bits = [&](unsigned step) -> uint32_t {
                if (PARTLY && !(ALONG ? block.has(out, step) : block.has(step, out))) return 0;
                const T* from = ALONG ? tile.at(out, step) : tile.at(step, out);
                return *reinterpret_cast<const uint16_t*>(from);
            };
            const unsigned step = t + e / 2 * 8;
            a[e] = bits(step) | bits(step + 4) << 16;
        }
#pragma unroll
        for (int v = 0; v < VECTORS / 8; ++v) {
            uint32_t b[2];
            x.read(b, k0, 8 * v + g, t);
            ptx::mma_16816(acc[v], a, b, T{});
        }
        return true;
    }
};

}  // namespace packedtri::cuda
