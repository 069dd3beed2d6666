// The triangle is cut into tiles of 128 x 128, and every block has equally many of them, which follow one another: those of
// 128 rows, or of 128 columns, up to the diagonal, and then of others. The copy engine brings their rows as they lie, and the
// vectors at their columns or rows as image blocks. Two warpgroups multiply, with the triangle as the left operand, which
// tensor cores take from registers, and so need no alignment there. What a block has of a sum goes to scratch memory, and a
// second kernel adds it up, in the order of the blocks. The triangle is the left operand whichever side it is on: rows times
// T are the rows of Tᵀ times columns.
#include "wide.h"

#include "mapped_vectors.cuh"
#include "wide_groups.cuh"
#include "wide_launch.cuh"

namespace packedtri::cuda {
namespace {

template <class T, int VECTORS, bool X_ALONG>
void launch(const WideArgs<T>& args, cudaStream_t stream) {
    using Shape = WideShape<T, VECTORS, X_ALONG>;
    launch_wide<T, Shape, WideProducer<T, Shape>, WideConsumer<T, Shape>>(args, stream);
}

template <bool X_ALONG, class T>
void launch(const WideArgs<T>& args, cudaStream_t stream) {
    switch (args.at_once) {
        case 16: return launch<T, 16, X_ALONG>(args, stream);
        case 64: return launch<T, 64, X_ALONG>(args, stream);
        case 128: return launch<T, 128, X_ALONG>(args, stream);
        default: return launch<T, 256, X_ALONG>(args, stream);
    }
}

template <class T>
bool run(const Product& p, Scratch& scratch, cudaStream_t stream) {
    const MappedVectors<T> vectors(p);
    WideArgs<T> args(p, current_device().multiprocessors);
    if (!place_vectors(vectors, args, scratch, stream)) return false;
    if (vectors.along()) launch<true>(args, stream);
    else launch<false>(args, stream);
    return true;
}

}  // namespace

bool mm_wide(const Product& p, Scratch& scratch, cudaStream_t stream) {
    return p.dtype == DType::f16 ? run<__half>(p, scratch, stream)
                                 : run<__nv_bfloat16>(p, scratch, stream);
}

}  // namespace packedtri::cuda
