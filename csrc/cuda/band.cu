// Packed triangles whose diagonals have one of two factors.
#include "conversion_tile.cuh"
#include "elements.cuh"
#include "hopper.cuh"
#include "kernels.h"
#include "launch.h"
#include "triangle_elements.cuh"

namespace packedtri::cuda {
namespace {

constexpr int THREADS = 256;

template <class T>
__global__ void __launch_bounds__(THREADS) scale_band_kernel(const BandScale p) {
    using Sum = Accumulator<T>;
    using Real = typename Sum::real;
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int64_t size = row_start(p.n);
    const auto inside = static_cast<Real>(p.inside), outside = static_cast<Real>(p.outside);
    for_each_element<THREADS>(size * p.batch, size, [&](int64_t b, int64_t t, int64_t i) {
        const int64_t below = i - (t - row_start(i));
        const Real factor = below >= p.nearest && below <= p.farthest ? inside : outside;
        T x{};
        if (factor != 0) {
            x = static_cast<const T*>(p.packed)[b * p.packed_batch_stride + t];
            if (factor != 1) x = Sum::round(scale(Sum::widen(x), factor));
            if (below == 0) x = conversion::on_diagonal(x, p.hermitian);
        }
        static_cast<T*>(p.scaled)[b * size + t] = x;
    });
}

}  // namespace

void scale_band(const BandScale& p, cudaStream_t stream) {
    check_reach({p.n, p.batch});
    const dim3 grid = grid_of(blocks_of_elements(THREADS, row_start(p.n) * p.batch));
    with_element_type(p.dtype, [&](auto element) {
        launch_overlapping(scale_band_kernel<decltype(element)>, grid, THREADS, p, stream,
                           "cannot launch the scaling of diagonals");
    });
}

}  // namespace packedtri::cuda
