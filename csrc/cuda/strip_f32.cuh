// How the kernel for strips (strips.cuh) multiplies float32: each element is split into three bfloat16, and the six
// products of parts that matter are summed, the small ones first.
#pragma once

#include "bfloat16_parts.cuh"
#include "strip_tile.cuh"

namespace packedtri::cuda {

template <int VECTORS>
struct StripMath<float, VECTORS> {
    static constexpr int STAGES = 4;
    // Of the rows of a tile: a warp reads 4 elements of 8 rows, or 8 of 4, from no bank more than twice.
    static constexpr int PITCH = STRIP_TILE + 8;
    static constexpr bool NEEDS_ORDINARY = true;
    // Elements that three parts cannot hold because they are small are multiplied with UP before. Sums are finite all
    // the same beside elements of the triangle below MOST and of the vectors below MOST_OF_VECTORS.
    static constexpr float UP = 0x1p40f, MOST = 0x1p20f, MOST_OF_VECTORS = 0x1p60f;

    // The order of the steps of a sum does not matter. Of 16 of them lane t has those that are t modulo 4; of a vector
    // these lie side by side.
    template <int K>
    struct Vectors {
        alignas(16) uint16_t at[3][VECTORS][K + 16];

        // Four elements that are 4 steps apart. Returns whether tensor cores can multiply them.
        __device__ bool put(int k, int c, const float (&x)[4]) {
            uint32_t lost = 0;
            const Bfloat16Parts parts[] = {{x[0], lost}, {x[1], lost}, {x[2], lost}, {x[3], lost}};
#pragma unroll
            for (float one : x) lost |= !(fabsf(one) < MOST_OF_VECTORS);
#pragma unroll
            for (int p = 0; p < 3; ++p)
                *reinterpret_cast<uint2*>(&at[p][c][k / 16 * 16 + k % 4 * 4]) = {
                    __byte_perm(parts[0].bits[p], parts[1].bits[p], 0x7632),
                    __byte_perm(parts[2].bits[p], parts[3].bits[p], 0x7632)};
            return lost == 0;
        }
        __device__ void read(uint32_t (&b)[2], int part, int k, int c, int t) const {
            const uint2 four = *reinterpret_cast<const uint2*>(&at[part][c][k + 4 * t]);
            b[0] = four.x, b[1] = four.y;
        }
    };

    // As in float64. The six products of a sum follow one another, so CHAINS of them are under way at once.
    template <bool ALONG, int CHAINS, bool PARTLY, int K>
    __device__ static bool multiply(float (&acc)[VECTORS / 8][4], StripTile<float, PITCH> tile,
                                    const Vectors<K>& x, int k0, const StripBlock& block) {
        const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        // Rows that lie 8 apart begin at the same place in a word.
        const float *even = ALONG ? tile.at(g, t) : tile.at(t, g),
                    *odd = ALONG ? even + 4 : tile.at(t + 4, g);
        constexpr int OUT = ALONG ? PITCH : 1, STEP = ALONG ? 1 : PITCH;
        uint32_t a[3][4];
        // Splits the elements, `up` times as large. Returns whether that is exact.
        const auto split = [&](auto up) -> bool {
            uint32_t lost = 0;
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int away = e % 2 * 8 * OUT + e / 2 * 8 * STEP;
                const auto element = [&](float x, unsigned step) {
                    const unsigned out = g + e % 2 * 8;
                    if (PARTLY && !(ALONG ? block.has(out, step) : block.has(step, out)))
                        return 0.f;
                    if (!decltype(up)::value) return x;
                    lost |= !(fabsf(x) < MOST);
                    return x * UP;
                };
                const unsigned step = t + e / 2 * 8;
                const Bfloat16Parts first(element(even[away], step), lost),
                    second(element(odd[away], step + 4), lost);
#pragma unroll
                for (int p = 0; p < 3; ++p)
                    a[p][e] = __byte_perm(first.bits[p], second.bits[p], 0x7632);
            }
            return !__any_sync(~0u, lost);
        };
        float down = 1;
        if (!split(std::false_type{})) {
            if (!split(std::true_type{})) return false;
            down = 1 / UP;
        }
#pragma unroll
        for (int v = 0; v < VECTORS / 8; v += CHAINS) {
            uint32_t b[CHAINS][3][2];
#pragma unroll
            for (int c = 0; c < CHAINS; ++c)
#pragma unroll
                for (int p = 0; p < 3; ++p) x.read(b[c][p], p, k0, 8 * (v + c) + g, t);
            // Tensor cores cut off every addition, so that sums are put together elsewhere.
            float sums[CHAINS][4] = {};
            const auto add = [&](int of_a, int of_b) {
#pragma unroll
                for (int c = 0; c < CHAINS; ++c)
                    ptx::mma_16816(sums[c], a[of_a], b[c][of_b], __nv_bfloat16{});
            };
            add(2, 0), add(1, 1), add(0, 2), add(1, 0), add(0, 1), add(0, 0);
#pragma unroll
            for (int c = 0; c < CHAINS; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) acc[v + c][e] = fmaf(sums[c][e], down, acc[v + c][e]);
        }
        return true;
    }
};

}  // namespace packedtri::cuda
