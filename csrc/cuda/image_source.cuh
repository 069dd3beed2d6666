// How 256 threads read a block of an operand that an image is made of.
#pragma once

#include "pack_rows.cuh"

namespace packedtri::cuda {

// Goes down a column of the rows of memory, DOWN rows at a time, by strides: to find each element from its indices
// takes registers, and so loads that are on their way together.
template <class T, int DOWN>
class ColumnWalk {
  public:
    __device__ ColumnWalk(const Panel<T>& panel, const T* data, int i, int j)
        : panel_(panel), from_(data + panel.row_offset(i) + j), i_(i), j_(j),
          step_(DOWN * panel.ld + (panel.packed ? DOWN * int64_t{i} + DOWN * (DOWN + 1) / 2 : 0)) {}

    // The element `right` columns on, zero where none is stored.
    __device__ __forceinline__ T at(int right) const { return has(right) ? from_[right] : T{}; }
    __device__ __forceinline__ bool has(int right) const {
        return i_ < panel_.rows && j_ + right < panel_.length(i_);
    }
    __device__ __forceinline__ void advance() {
        from_ += step_;
        i_ += DOWN;
        if (panel_.packed) step_ += DOWN * DOWN;
    }

  private:
    const Panel<T>& panel_;
    const T* from_;
    int i_;
    const int j_;
    int64_t step_;
};

// A block in shared memory, the only one, padded so that neither its rows nor its columns meet in one
// bank.
template <class T>
struct StoredBlock {
    T at[Image::SIDE][Image::SIDE + 4 / sizeof(T)];

    __device__ void load(const PackArgs<T>& args, const T* data, int row, int col) {
        constexpr int DOWN = 256 / Image::SIDE, AT_ONCE = sizeof(T) == 4 ? 8 : 4;
        const int r = threadIdx.x / Image::SIDE, c = threadIdx.x % Image::SIDE;
        ColumnWalk<T, DOWN> walk(args.panel, data, row * Image::SIDE + r, col * Image::SIDE + c);
#pragma unroll
        for (int first = 0; first < Image::SIDE; first += AT_ONCE * DOWN) {
            T read[AT_ONCE];
#pragma unroll
            for (int b = 0; b < AT_ONCE; ++b, walk.advance()) read[b] = walk.at(0);
#pragma unroll
            for (int b = 0; b < AT_ONCE; ++b) at[first + b * DOWN + r][c] = read[b];
        }
        __syncthreads();
    }
};
template <class T>
__device__ StoredBlock<T>& stored_block() {
    __shared__ StoredBlock<T> block;
    return block;
}

// A block of a symmetric matrix, on either side of the diagonal, from the stored half.
template <class T>
struct MirroredBlock {
    StoredBlock<T>& stored = stored_block<T>();
    int row, col;

    __device__ MirroredBlock(const PackArgs<T>& args, const T* data, int row, int col)
        : row(row), col(col) {
        stored.load(args, data, max(row, col), min(row, col));
    }
    __device__ __forceinline__ T at(int r, int c) const {
        const bool below = row > col || (row == col && r >= c);
        return below ? stored.at[r][c] : stored.at[c][r];
    }
};

}  // namespace packedtri::cuda
