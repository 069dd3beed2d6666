// The first zero on the diagonals of packed triangles, in one launch: small inverses wait for launches.
#include "elements.cuh"
#include "hopper.cuh"
#include "kernels.h"
#include "launch.h"

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

}  // namespace

void first_zero(const FirstZero& p, cudaStream_t stream) {
    check_reach({p.n, p.batch});
    with_element_type(p.dtype, [&](auto element) {
        launch_overlapping(first_zero_kernel<decltype(element)>,
                           dim3(static_cast<unsigned>(p.batch)), THREADS, p, stream,
                           "cannot launch the search for a zero");
    });
}

}  // namespace packedtri::cuda
