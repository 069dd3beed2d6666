// How the kernel for strips (strips.cuh) multiplies float64.
#pragma once

#include "strip_tile.cuh"

namespace packedtri::cuda {

template <int VECTORS>
struct StripMath<double, VECTORS> {
    static constexpr int STAGES = VECTORS == 32 ? 3 : 4;
    // Of the rows of a tile: half a warp reads 4 x 4 elements along either side, from as good as 16 different pairs
    // of banks.
    static constexpr int PITCH = STRIP_TILE + 4;
    // Tensor cores multiply nan and infinity like any other number.
    static constexpr bool NEEDS_ORDINARY = false;

    // K steps of the vectors, side by side.
    template <int K>
    struct Vectors {
        double at[K][VECTORS + 4];

        // Four elements that are 4 steps apart. Returns whether tensor cores can multiply them with zeros.
        __device__ bool put(int k, int c, const double (&x)[4]) {
#pragma unroll
            for (int e = 0; e < 4; ++e) at[k + 4 * e][c] = x[e];
            return isfinite(x[0]) && isfinite(x[1]) && isfinite(x[2]) && isfinite(x[3]);
        }
    };

    // acc += 16 rows of a tile, 16 elements of each, times 16 steps of x; of 16 rows 16 columns where not ALONG. PARTLY:
    // `block` says which elements count. Returns whether it could. Products of different vectors are independent, however
    // many there are at once.
    template <bool ALONG, int CHAINS, bool PARTLY, int K>
    __device__ static bool multiply(double (&acc)[VECTORS / 8][4], StripTile<double, PITCH> tile,
                                    const Vectors<K>& x, int k0, const StripBlock& block) {
        const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        // Rows that lie 4 apart begin at the same place in a word.
        const double* from = ALONG ? tile.at(g, t) : tile.at(t, g);
        constexpr int OUT = ALONG ? PITCH : 1, STEP = ALONG ? 1 : PITCH;
        double a[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            a[e] = from[e % 2 * 8 * OUT + e / 2 * 4 * STEP];
            const unsigned out = g + e % 2 * 8, step = t + e / 2 * 4;
            if (PARTLY && !(ALONG ? block.has(out, step) : block.has(step, out))) a[e] = 0;
        }
#pragma unroll
        for (int v = 0; v < VECTORS / 8; ++v) {
            double b[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) b[e] = x.at[k0 + t + 4 * e][8 * v + g];
            ptx::mma_16816(acc[v], a, b);
        }
        return true;
    }
};

}  // namespace packedtri::cuda
