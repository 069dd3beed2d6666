#include "fragments.cuh"

#include "fragments.h"

namespace packedtri::cuda {
namespace {

template <class T>
void run(const Product& p, const Config& config, cudaStream_t stream) {
    using Tile = FragmentTile<T>;
    const OrientedPanel<T> a = orient<T>(p.a, true), b = orient<T>(p.b, false);
    const ProductArgs<T> args = arguments<Tile>(p, config, a, b);
    const auto kernel = fragments_kernel<T>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(args.items), dim3(static_cast<unsigned>(32 * config.split)),
                       args, stream, "cannot launch a product", 1,
                       keep_apart(Tile::shared_bytes(config.split), args.items));
}

}  // namespace

void mm_fragments(const Product& p, const Config& config, cudaStream_t stream) {
    switch (p.dtype) {
        case DType::f16: return run<__half>(p, config, stream);
        case DType::bf16: return run<__nv_bfloat16>(p, config, stream);
        case DType::f32: return run<float>(p, config, stream);
        case DType::f64: return run<double>(p, config, stream);
        case DType::c64: return run<Complex<float>>(p, config, stream);
        case DType::c128: return run<Complex<double>>(p, config, stream);
    }
}

}  // namespace packedtri::cuda
