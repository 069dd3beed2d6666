// Fragments of a packed operand that lies in shared memory as a whole.
#pragma once

#include <cstdint>

#include "../index.h"
#include "../problem.h"
#include "fragment_math.cuh"

namespace packedtri::cuda {

// The steps that a lane has of 16. Which these are does not matter, as long as it has the same of both operands.
struct LaneSteps {
    int k[4];
    __device__ static LaneSteps every_fourth() {
        const int t = static_cast<int>(threadIdx.x) % 4;
        return {{t, t + 4, t + 8, t + 12}};
    }
};

// 16 MT rows from r0 on of a packed matrix of order `order`: of a lower triangle T, of its transpose, or of T with its
// strict half mirrored. As KIND says; a column of a right operand is a row of the transposed kind.
//
// Row r of T begins at element r (r + 1) / 2. Of 16 rows in turn these are sixteen different numbers modulo 16, so that
// lanes whose rows are chosen for it meet different banks of shared memory: those of float64 in each half of a warp.
template <class T, int MT, Kind KIND>
class ResidentLines {
    static constexpr bool LOWER = KIND != Kind::Upper, UPPER = KIND != Kind::Lower;

  public:
    struct Fragments {
        T x[2][4];
    };

    // Of a Hermitian matrix, elements right of the diagonal are conjugates of those stored, or left of it, if `conj_left`.
    __device__ ResidentLines(const T* data, int order, bool hermitian, bool conj_left, int r0)
        : data_(data), order_(order), hermitian_(is_complex<T> && hermitian), conj_left_(conj_left),
          r0_(r0), place_{lane_line(0), lane_line(1)} {
        if constexpr (LOWER) {
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int u = 0; u < 2; ++u)
                    // Past the end it is some row of the matrix.
                    start_[m][u] =
                        row_start<int>(min(r0 + 16 * m + place_[u], order - 1)) + lane_step();
        }
    }

    // The two lines of 16 that a lane has.
    __device__ static int lane_line(int u) {
        const uint32_t of_lanes = u == 0 ? 0x9e617f80 : 0x5da2c43b;
        return static_cast<int>(of_lanes >> (threadIdx.x % 32 / 4 * 4) & 15);
    }

    // From which step on all lines are read by the rows of T that cross them.
    __device__ int all_across() const { return UPPER ? r0_ + 16 * MT : 1 << 30; }
    // The steps that lanes had better have from there on: such that of the rows they are read from, the first elements have
    // four different numbers modulo 8. Before, every fourth one.
    __device__ static LaneSteps steps_across() {
        const auto own = [](uint32_t of_lanes) {
            return static_cast<int>(of_lanes >> (threadIdx.x % 4 * 4) & 15);
        };
        return {{own(0x3740), own(0x5621), own(0xbfc8), own(0xdea9)}};
    }

    // To be called before lines are loaded at these steps.
    __device__ __forceinline__ void turn_to(int k0, const LaneSteps& steps) {
        if constexpr (UPPER) {
            if (k0 < r0_) return;
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                const int row = row_start<int>(min(k0 + steps.k[v], order_ - 1));
#pragma unroll
                for (int u = 0; u < 2; ++u) across_[v][u] = row + r0_ + place_[u];
            }
        }
    }

    // Lines [16 m, 16 m + 16), zeros past the diagonal. Steps past the end are elements of the matrix; so are rows past the
    // end, or what follows the matrix in shared memory (resident_bytes).
    __device__ __forceinline__ Fragments load(int m, int k0) const {
        const int i = r0_ + 16 * m;
        Fragments f;
        if (LOWER && k0 < i) {
            for_all(f, [&](int u, int v) { return data_[along(m, u, k0, v)]; });
            if (hermitian_ && conj_left_) conjugate(f);
        } else if (UPPER && k0 > i) {
            for_all(f, [&](int u, int v) { return data_[across(m, u, v)]; });
            if (hermitian_ && !conj_left_) conjugate(f);
        } else {
            // Hidden, so that what follows from it is not kept in registers throughout the sum.
            const int t = ptx::hidden(lane_step());
            for_all(f, [&](int u, int v) {
                const int right = t + 4 * v - place_[u];
                T x = data_[!LOWER || (UPPER && right > 0) ? across(m, u, v) : along(m, u, k0, v)];
                if ((!UPPER && right > 0) || (!LOWER && right < 0)) x = T{};
                if constexpr (is_complex<T>)
                    if (hermitian_)
                        x.im = right == 0 ? 0 : negate_if(x.im, (right < 0) == conj_left_);
                return x;
            });
        }
        return f;
    }

    // Whether lines [16 m, 16 m + 16) have anything at steps [k0, k0 + 16).
    __device__ bool needed(int m, int k0) const {
        const int i = r0_ + 16 * m;
        return i < order_ && (LOWER || k0 >= i) && (UPPER || k0 <= i);
    }

  private:
    __device__ static int lane_step() { return static_cast<int>(threadIdx.x) % 4; }
    __device__ static void conjugate(Fragments& f) {
#pragma unroll
        for (int u = 0; u < 2; ++u)
#pragma unroll
            for (int v = 0; v < 4; ++v) f.x[u][v] = conjugate_if(f.x[u][v], true);
    }

    // Where elements are, by the rows of T that they lie in as rows of the operand, and as columns.
    __device__ int along(int m, int u, int k0, int v) const {
        if constexpr (LOWER) return start_[m][u] + k0 + 4 * v;
        else return 0;
    }
    __device__ int across(int m, int u, int v) const {
        if constexpr (UPPER) return across_[v][u] + 16 * m;
        else return 0;
    }
    template <class At>
    __device__ __forceinline__ static void for_all(Fragments& f, At at) {
#pragma unroll
        for (int u = 0; u < 2; ++u)
#pragma unroll
            for (int v = 0; v < 4; ++v) f.x[u][v] = at(u, v);
    }

    const T* data_;
    const int order_;
    const bool hermitian_, conj_left_;
    const int r0_, place_[2];
    int start_[MT][2];
    int across_[4][2];
};

}  // namespace packedtri::cuda
