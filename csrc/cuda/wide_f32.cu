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
    const int64_t bytes = args.bytes();
    void* const memory = scratch.reserve_if_free(bytes + vectors.bytes());
    if (!memory) return false;
    args.sums = static_cast<float*>(memory);
    args.x_map = vectors.map(static_cast<char*>(memory) + bytes, stream);
    args.one_x = vectors.one();
    switch (args.at_once) {
        case 16: launch<16>(args, stream); break;
        case 32: launch<32>(args, stream); break;
        case 64: launch<64>(args, stream); break;
        default: launch<128>(args, stream);
    }
    return true;
}

}  // namespace packedtri::cuda
