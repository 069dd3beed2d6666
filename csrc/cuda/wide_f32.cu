// The kernel of wide.cu for float32 (wide_floats.cuh).
#include "wide.h"

#include "wide_floats.cuh"
#include "wide_launch.cuh"

namespace packedtri::cuda {
namespace {

template <int VECTORS>
void launch(const WideArgs<float>& args, cudaStream_t stream) {
    using Shape = WideFloatShape<VECTORS>;
    launch_wide<float, Shape, WideFloatProducer<Shape>, WideFloatConsumer<Shape>>(args, stream);
}

}  // namespace

bool mm_wide_f32(const Product& p, Scratch& scratch, cudaStream_t stream) {
    WideArgs<float> args(p, current_device().multiprocessors);
    const SplitVectors vectors(p, args);
    if (!place_vectors(vectors, args, scratch, stream)) return false;
    switch (args.at_once) {
        case 16: launch<16>(args, stream); break;
        case 32: launch<32>(args, stream); break;
        case 64: launch<64>(args, stream); break;
        default: launch<128>(args, stream);
    }
    return true;
}

}  // namespace packedtri::cuda
