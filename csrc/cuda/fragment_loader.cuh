// Loads fragments of an operand (fragment_math.cuh) from memory.
#pragma once

#include "panel.cuh"

namespace packedtri::cuda {

// 16 rows of A, or columns of B, by 16 steps of k: lane l has lines l / 4 and l / 4 + 8, and every fourth step from l % 4
// on. A symmetric operand is read left of its diagonal by memory rows that run along k, right of it by such as run across,
// as the transpose.
template <class T>
class FragmentLoader {
    static constexpr int UNITS = 2, LINES = 8 * UNITS;

  public:
    static constexpr int STEPS = 16;
    struct Fragments {
        T x[UNITS][STEPS / 4];
    };

    // The matrix begins `matrix` elements after the panel, and its first line here is r0. `along`: whether memory rows run
    // along k, unless the operand is symmetric. `left`: whether it is A.
    __device__ FragmentLoader(const Panel<T>& panel, int64_t matrix, Kind kind, bool hermitian,
                              bool along, bool left, int r0)
        : panel_(panel), data_(panel.data + matrix), mirrored_(kind == Kind::Symmetric),
          hermitian_(is_complex<T> && hermitian), along_(along), left_(left), r0_(r0) {}

    // Steps [k0, k0 + 16), zeros past the stored elements.
    __device__ __forceinline__ void load(Fragments& f, int k0) const {
        const int lane = static_cast<int>(threadIdx.x) % 32, r = r0_ + lane / 4, k = k0 + lane % 4;
        if (on_diagonal(k0)) {
#pragma unroll
            for (int u = 0; u < UNITS; ++u)
#pragma unroll
                for (int v = 0; v < STEPS / 4; ++v) load_any(f.x[u][v], r + 8 * u, k + 4 * v);
        } else if (runs_along(k0)) {
#pragma unroll
            for (int u = 0; u < UNITS; ++u) {
                const int row = r + 8 * u, length = row < panel_.rows ? panel_.length(row) : 0;
                const T* from = data_ + (row_offset(row) + k);
#pragma unroll
                for (int v = 0; v < STEPS / 4; ++v)
                    load_if(f.x[u][v], from + 4 * v, k + 4 * v < length);
            }
        } else {
#pragma unroll
            for (int v = 0; v < STEPS / 4; ++v) {
                const int row = k + 4 * v, length = row < panel_.rows ? panel_.length(row) : 0;
                const T* from = data_ + (row_offset(row) + r);
#pragma unroll
                for (int u = 0; u < UNITS; ++u)
                    load_if(f.x[u][v], from + 8 * u, r + 8 * u < length);
            }
        }
        if (hermitian_ && !on_diagonal(k0) && runs_along(k0) != left_) conjugate(f);
    }

    // Element (r, k), or zero. Returns whether it is stored.
    __device__ __forceinline__ bool load_any(T& x, int r, int k) const {
        const bool by_rows = mirrored_ ? k <= r : along_;
        const int row = by_rows ? r : k, col = by_rows ? k : r;
        const bool stored = row < panel_.rows && col < panel_.length(row);
        load_if(x, data_ + (row_offset(row) + col), stored);
        if constexpr (is_complex<T>)
            if (hermitian_) x.im = r == k ? 0 : negate_if(x.im, by_rows != left_);
        return stored;
    }

    // Whether steps [k0, k0 + 16) hold structural zeros.
    __device__ bool crosses_diagonal(int k0) const {
        if (mirrored_) return false;
        return along_ ? panel_.crosses_diagonal(r0_, k0, STEPS)
                      : panel_.crosses_diagonal(k0, r0_, LINES);
    }

    __device__ static void conjugate(Fragments& f) {
#pragma unroll
        for (int u = 0; u < UNITS; ++u)
#pragma unroll
            for (int v = 0; v < STEPS / 4; ++v) f.x[u][v] = conjugate_if(f.x[u][v], true);
    }

  private:
    __device__ bool on_diagonal(int k0) const {
        return mirrored_ && k0 + STEPS > r0_ && k0 < r0_ + LINES;
    }
    __device__ bool runs_along(int k0) const { return mirrored_ ? k0 < r0_ : along_; }
    // In 32 bits, which suffice (counts_in_32_bits).
    __device__ int row_offset(int row) const {
        return row * static_cast<int>(panel_.ld) + (panel_.packed ? row_start<int>(row) : 0);
    }
    __device__ __forceinline__ static void load_if(T& x, const T* from, bool needed) {
        x = T{};
        if (needed) x = *from;
    }

    const Panel<T>& panel_;
    const T* data_;
    const bool mirrored_, hermitian_, along_, left_;
    const int r0_;
};

// Element (i, j) of a product over stored elements only.
template <class Math, class T>
__device__ __forceinline__ T product_of_stored(const FragmentLoader<T>& a,
                                               const FragmentLoader<T>& b, int i, int j,
                                               int steps) {
    typename Math::Sum sum{};
#pragma unroll 1
    for (int k = 0; k < steps; ++k) {
        T x, y;
        const bool in_a = a.load_any(x, i, k), in_b = b.load_any(y, j, k);
        if (in_a && in_b) fma_into(sum, Math::widen(x), Math::widen(y));
    }
    return Math::round(sum);
}

}  // namespace packedtri::cuda
