// Four warps have the copy engine bring pieces of rows of the triangle to shared memory, as they lie: in words of
// 16 bytes, in which a row begins anywhere. Two warpgroups bring them in line, as image blocks (image.h), and
// multiply them by blocks of the vectors, which the copy engine brings in that order. The triangle is the left
// operand of the tensor cores whichever side it is on: rows times T are the rows of Tᵀ times columns.
#include "wide.h"

#include <algorithm>

#include "launch.h"
#include "tensor_map.h"
#include "wide_loader.cuh"
#include "wide_product.cuh"

namespace packedtri::cuda {
namespace {

template <class T, int C, bool X_ALONG>
__global__ void __launch_bounds__(WIDE_THREADS, 1)
    wide_kernel(const __grid_constant__ WideArgs<T> args) {
    extern __shared__ __align__(1024) char shared[];
    if (threadIdx.x == 0) WideBarriers<C>(shared).init(args.thin.split);
    if (args.thin.split > 1) ptx::cluster_sync();
    else __syncthreads();
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    if (threadIdx.x >= WIDE_MULTIPLIERS) {
        ptx::keep_registers<64>();
        WideLoader<T, C>(args, shared).run();
    } else {
        ptx::take_registers<216>();
        WideProduct<T, C, X_ALONG>(args, shared).run();
    }
}

template <class T, int C>
void launch(const WideArgs<T>& args, bool x_along, cudaStream_t stream) {
    using Tile = WideTile<C>;
    const ThinArgs<T>& thin = args.thin;
    const auto kernel = x_along ? wide_kernel<T, C, true> : wide_kernel<T, C, false>;
    allow_shared(kernel);
    const int64_t items = ceil_div(thin.n, WIDE_OUT) * ceil_div(thin.vectors, C) * thin.batch,
                  clusters = std::min<int64_t>(
                      items,
                      clusters_at_once(kernel, WIDE_THREADS, Tile::SHARED_BYTES, thin.split));
    launch_overlapping(kernel, dim3(static_cast<unsigned>(clusters * thin.split)), WIDE_THREADS,
                       args, stream, "cannot launch a product", thin.split, Tile::SHARED_BYTES);
}

template <class T>
void run(const Product& p, const Config& config, cudaStream_t stream) {
    const bool left = p.a.kind != Kind::Dense, symmetric = has_symmetric(p);
    const Operand& x = left ? p.b : p.a;
    WideArgs<T> args{thin_args<T>(p), map_of(x, p.dtype, p.batch), x.batch_stride == 0,
                     symmetric || sums_along_rows(p), symmetric || !sums_along_rows(p)};
    args.thin.split = config.split;
    const bool x_along = runs_along_rows(x) != left;
    switch (wide_vectors(args.thin.vectors, config.tile)) {
        case 64: return launch<T, 64>(args, x_along, stream);
        case 128: return launch<T, 128>(args, x_along, stream);
        default: return launch<T, 256>(args, x_along, stream);
    }
}

}  // namespace

void mm_wide(const Product& p, const Config& config, cudaStream_t stream) {
    if (p.dtype == DType::f16) run<__half>(p, config, stream);
    else run<__nv_bfloat16>(p, config, stream);
}

}  // namespace packedtri::cuda
