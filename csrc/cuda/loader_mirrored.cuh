// Loads tiles of a symmetric operand, of which one half is stored, and of operands of which only the launch knows how
// their memory rows run.
#pragma once

#include "loader_async.cuh"

namespace packedtri::cuda {

// Left of the diagonal a symmetric operand is read as it is stored, by memory rows that run along k, and right of it by
// such as run across, as the transpose. Steps on the diagonal go element by element: no place is a structural zero. They
// begin at multiples of BK, and tiles at multiples of R, so that each step lies in one of these parts.
template <class T, int R, int BK, int THREADS, class Layout, int LANES_K>
class MirroredLoader {
    using Along = AsyncLoader<T, R, BK, THREADS, true, Layout, LANES_K>;
    using Across = AsyncLoader<T, R, BK, THREADS, false, Layout, LANES_K>;
    static_assert(R % BK == 0, "where the diagonal crosses tiles");
    static constexpr int WARPS = THREADS / 32, LANES_R = 32 / LANES_K, R_STEP = WARPS * LANES_R;

  public:
    // `left`: whether the operand is A. `along`: whether memory rows run along k, unless it is symmetric.
    __device__ MirroredLoader(const Panel<T>& panel, Kind kind, bool left, bool along, int r0,
                              int k0)
        : panel_(panel), mirrored_(kind == Kind::Symmetric), left_(left), along_(along), r0_(r0),
          k0_(k0) {}

    // Starts copying the next BK steps into `tile`; places past the stored elements become zero.
    __device__ void begin(T* tile) {
        if (on_diagonal(k0_)) copy_mirrored(tile);
        else if (runs_along(k0_)) Along(panel_, r0_, k0_).next(tile);
        else Across(panel_, r0_, k0_).next(tile);
        k0_ += BK;
    }

    // As AsyncLoader has it, but no steps go by parts.
    __device__ void begin_part(T* tile, int part, int) {
        if (part == 0) begin(tile);
    }

    // Whether steps [k0, k0 + BK) hold structural zeros.
    __device__ bool crosses_diagonal(int k0) const {
        if (mirrored_) return false;
        return along_ ? panel_.crosses_diagonal(r0_, k0, BK) : panel_.crosses_diagonal(k0, r0_, R);
    }

    // Makes steps [k0, k0 + BK) those of a Hermitian matrix. To be called after this thread's copies have landed.
    __device__ void make_hermitian(T* tile, int k0) const {
        if (on_diagonal(k0)) mirror_hermitian(tile, k0 - r0_, left_);
        // Elements (i, j) are stored where j <= i: of A k is j, of B it is i.
        else if (runs_along(k0) != left_) conjugate(tile, k0);
    }

  private:
    __device__ bool on_diagonal(int k0) const {
        return mirrored_ && static_cast<unsigned>(k0 - r0_) < static_cast<unsigned>(R);
    }
    __device__ bool runs_along(int k0) const { return mirrored_ ? k0 < r0_ : along_; }

    // This thread's first element of a tile on the diagonal; the others are R_STEP and LANES_K further.
    __device__ static int first_r() {
        const int thread = ptx::thread_of<THREADS>();
        return thread / 32 * LANES_R + thread % 32 / LANES_K;
    }
    __device__ static int first_k() { return static_cast<int>(threadIdx.x) % 32 % LANES_K; }

    __device__ void copy_mirrored(T* tile) const {
#pragma unroll 1
        for (int r = first_r(); r < R; r += R_STEP)
#pragma unroll
            for (int x = 0; x < BK / LANES_K; ++x) {
                const int k = first_k() + x * LANES_K, i = r0_ + r, j = k0_ + k, row = max(i, j);
                const T* from = panel_.data + panel_.row_offset(row) + min(i, j);
                ptx::cp_async<sizeof(T)>(ptx::shared_address(tile + Layout::at(r, k)), from,
                                         row < panel_.rows);
            }
    }

    __device__ void conjugate(T* tile, int k0) const {
        if (runs_along(k0)) Along(panel_, r0_, k0).conjugate(tile);
        else Across(panel_, r0_, k0).conjugate(tile);
    }
    // A call, so that the registers that this takes are not the main loop's.
    __device__ __noinline__ static void mirror_hermitian(T* tile, int first_step, bool left) {
        for (int r = first_r(); r < R; r += R_STEP)
            for (int k = first_k(); k < BK; k += LANES_K) {
                const int right = first_step + k - r, above = left ? right : -right;
                T& x = tile[Layout::at(r, k)];
                x = {x.re, above == 0 ? 0 : above > 0 ? -x.im : x.im};
            }
    }

    const Panel<T> panel_;
    const bool mirrored_, left_, along_;
    const int r0_;
    int k0_;
};

}  // namespace packedtri::cuda
