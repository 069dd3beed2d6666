// What the kernels in shared memory have in common.
#pragma once

#include "../index.h"
#include "elements.cuh"
#include "hopper.cuh"
#include "launch.h"
#include "panel.cuh"
#include "ptx.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

// Columns of a triangle that are eliminated at a time.
constexpr int STEP = 16;
// Neighbouring elements of a column that a thread reads at once.
constexpr int SHARE = 4;

template <class T>
__device__ constexpr T one() {
    if constexpr (is_complex<T>) return {1, 0};
    else return 1;
}

// A lower triangle, or any matrix, by columns, so that neighbouring rows can be read at once.
template <class T>
struct SharedTriangle {
    T* data;
    int pitch;

    __host__ __device__ static constexpr int pitch_of(int order) { return order + 4; }
    __device__ T& at(int row, int col) const { return data[col * pitch + row]; }

    // N elements of column `col` by words of 16 bytes, which begin at multiples of their length and `apart` rows apart.
    template <int N>
    __device__ void load(T (&x)[N], int row, int apart, int col) const {
#pragma unroll
        for (int w = 0; w < N / WORD; ++w) {
            const Word word = reinterpret_cast<const Word&>(at(row + w * apart, col));
#pragma unroll
            for (int e = 0; e < WORD; ++e) x[w * WORD + e] = word.x[e];
        }
    }
    template <int N>
    __device__ void store(const T (&x)[N], int row, int apart, int col) const {
#pragma unroll
        for (int w = 0; w < N / WORD; ++w) {
            Word word;
#pragma unroll
            for (int e = 0; e < WORD; ++e) word.x[e] = x[w * WORD + e];
            reinterpret_cast<Word&>(at(row + w * apart, col)) = word;
        }
    }

  private:
    static constexpr int WORD = 16 / sizeof(T);
    struct alignas(16) Word {
        T x[WORD];
    };
};

// A row of `cols` elements, at most 256, is the work of so many neighbouring threads.
__host__ __device__ constexpr int row_threads(int cols) {
    return cols <= 16 ? 16 : cols <= 32 ? 32 : cols <= 64 ? 64 : cols <= 128 ? 128 : 256;
}

// Calls f(r, c) once for each place of a rectangle of rows x cols, for which the block has threads of one
// row at least. Every thread keeps to one column: what depends on the column alone is computed once, and
// several rows are on their way at a time. Threads left over by whole rows have nothing to do.
template <class F>
__device__ void for_rectangle(int rows, int cols, F f) {
    const int width = row_threads(cols), step = static_cast<int>(blockDim.x) / width;
    const int first = threadIdx.x / width, c = threadIdx.x & (width - 1);
    if (first >= step || c >= cols) return;
#pragma unroll 4
    for (int r = first; r < rows; r += step) f(r, c);
}

// Calls f with a value of the element type, for the types that are solved with.
template <class F>
void with_solved_type(DType dtype, F f) {
    switch (dtype) {
        case DType::f32: return f(float{});
        case DType::f64: return f(double{});
        case DType::c64: return f(Complex<float>{});
        case DType::c128: return f(Complex<double>{});
        default: throw std::runtime_error("[packedtri] 16-bit elements are not solved with");
    }
}

// What the kernels of leaves start with: the next kernel may set itself up while a leaf's few blocks run.
// They themselves are launched when the kernel before has ended, because blocks that are launched while
// most multiprocessors are busy gather on the others.
__device__ __forceinline__ void start_leaf() { ptx::launch_dependents(); }

// Launches `kernel`, one block for each of `count` pieces of work.
template <class Kernel, class Args>
void launch_leaf(Kernel kernel, int64_t count, int threads, int64_t shared, const Args& args,
                 cudaStream_t stream) {
    const dim3 grid = grid_of(count);
    allow_shared(kernel);
    kernel<<<grid, threads, shared, stream>>>(args);
    check(cudaGetLastError(), "cannot launch a solve");
}

// For what teams of lanes do in registers, `Leaf::TEAMS` of them a block.
template <class Leaf>
__global__ void __launch_bounds__(Leaf::THREADS)
    team_leaf_kernel(const __grid_constant__ typename Leaf::Args args) {
    extern __shared__ __align__(16) char shared[];
    start_leaf();
    Leaf::run(args, shared);
}

// One team for each of `work` pieces of work.
template <class Leaf>
void launch_team_leaf(const typename Leaf::Args& args, int64_t work, cudaStream_t stream) {
    launch_leaf(team_leaf_kernel<Leaf>, ceil_div(work, Leaf::TEAMS), Leaf::THREADS,
                Leaf::SHARED_BYTES, args, stream);
}

}  // namespace packedtri::cuda
