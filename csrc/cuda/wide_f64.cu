// The kernel of wide.cu for float64 (wide_doubles.cuh).
#include "wide.h"

#include "wide_doubles.cuh"
#include "wide_launch.cuh"

namespace packedtri::cuda {
namespace {

template <int VECTORS>
void launch(const WideArgs<double>& args, cudaStream_t stream) {
    using Shape = WideDoubleShape<VECTORS>;
    launch_wide<double, Shape, WideDoubleProducer<Shape>, WideDoubleConsumer<Shape>>(args, stream);
}

}  // namespace

bool mm_wide_f64(const Product& p, Scratch& scratch, cudaStream_t stream) {
    WideArgs<double> args(p, current_device().multiprocessors);
    const ArrangedVectors vectors(p, args);
    if (!place_vectors(vectors, args, scratch, stream)) return false;
    if (args.at_once == 64) launch<64>(args, stream);
    else launch<128>(args, stream);
    return true;
}

}  // namespace packedtri::cuda
