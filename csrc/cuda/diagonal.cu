// Diagonals of packed triangles in one launch, for which small matrices wait: as vectors, and their first zeros.
#include "elements.cuh"
#include "hopper.cuh"
#include "kernels.h"
#include "launch.h"
#include "triangle_elements.cuh"

namespace packedtri::cuda {
namespace {

constexpr int THREADS = 256;

template <class T>
__device__ bool is_zero(T x) {
    return Accumulator<T>::widen(x) == 0;
}
template <class R>
__device__ bool is_zero(Complex<R> x) {
    return x.re == 0 && x.im == 0;
}

// A block a matrix.
template <class T>
__global__ void __launch_bounds__(THREADS) first_zero_kernel(const FirstZero p) {
    __shared__ int first;
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    if (threadIdx.x == 0) first = INT32_MAX;
    __syncthreads();
    const T* packed = static_cast<const T*>(p.packed) + blockIdx.x * p.batch_stride;
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS)
        if (is_zero(packed[offset(i, i)])) {
            atomicMin(&first, static_cast<int>(i) + 1);
            break;
        }
    __syncthreads();
    if (threadIdx.x == 0) p.info[blockIdx.x] = first == INT32_MAX ? 0 : first;
}

template <class T>
__global__ void __launch_bounds__(THREADS) diagonal_kernel(const Diagonal d) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int64_t count = d.n - d.below;
    for (int64_t t = blockIdx.x * int64_t{THREADS} + threadIdx.x; t < count * d.batch;
         t += gridDim.x * int64_t{THREADS}) {
        const int64_t b = t / count, j = t - b * count;
        static_cast<T*>(d.elements)[t] =
            static_cast<const T*>(d.packed)[b * d.packed_batch_stride + offset(j + d.below, j)];
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) embed_diagonal_kernel(const Diagonal d) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int64_t size = row_start(d.n);
    for_each_element<THREADS>(size * d.batch, size, [&](int64_t b, int64_t t, int64_t i) {
        const int64_t j = t - row_start(i);
        static_cast<T*>(d.packed)[b * size + t] =
            i - j == d.below ? static_cast<const T*>(d.elements)[b * (d.n - d.below) + j] : T{};
    });
}

template <class Kernel>
void launch(Kernel kernel, int64_t blocks, const Diagonal& d, cudaStream_t stream) {
    check_reach({d.n, d.batch});
    launch_overlapping(kernel, grid_of(blocks), THREADS, d, stream, "cannot launch a diagonal");
}

}  // namespace

void diagonal(const Diagonal& d, cudaStream_t stream) {
    const int64_t most = 16 * int64_t{current_device().multiprocessors};
    const int64_t blocks = std::min(ceil_div((d.n - d.below) * d.batch, THREADS), most);
    with_element_type(d.dtype, [&](auto element) {
        launch(diagonal_kernel<decltype(element)>, blocks, d, stream);
    });
}

void embed_diagonal(const Diagonal& d, cudaStream_t stream) {
    const int64_t blocks = blocks_of_elements(THREADS, row_start(d.n) * d.batch);
    with_element_type(d.dtype, [&](auto element) {
        launch(embed_diagonal_kernel<decltype(element)>, blocks, d, stream);
    });
}

void first_zero(const FirstZero& p, cudaStream_t stream) {
    check_reach({p.n, p.batch});
    with_element_type(p.dtype, [&](auto element) {
        launch_overlapping(first_zero_kernel<decltype(element)>,
                           dim3(static_cast<unsigned>(p.batch)), THREADS, p, stream,
                           "cannot launch the search for a zero");
    });
}

}  // namespace packedtri::cuda
