#include <stdexcept>

#include "elements.cuh"
#include "launch.h"
#include "mv.h"
#include "mv_held.cuh"

namespace packedtri::cuda {
namespace {

template <class T, Kind KIND, bool HERMITIAN>
void launch(const Product& p, const MvChoice& choice, cudaStream_t stream) {
    const MvHeldArgs<T> args{mv_args<T>(p), mv_held_layout(p, choice.group, choice.sharers)};
    const auto kernel = held_kernel<T, KIND, HERMITIAN>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(ceil_div(p.batch, choice.group)),
                       static_cast<unsigned>(args.layout.lines() * choice.group * choice.sharers),
                       args, stream, "cannot launch a matrix-vector product", 1,
                       static_cast<int>(mv_held_bytes(p, choice.group, choice.sharers)));
}

template <class T>
void launch(const Product& p, const MvChoice& choice, cudaStream_t stream) {
    const VectorProduct sides(p);
    if (sides.kind == Kind::Lower) return launch<T, Kind::Lower, false>(p, choice, stream);
    if (sides.kind == Kind::Upper) return launch<T, Kind::Upper, false>(p, choice, stream);
    if constexpr (is_complex<T>)
        if (sides.packed.hermitian) return launch<T, Kind::Symmetric, true>(p, choice, stream);
    launch<T, Kind::Symmetric, false>(p, choice, stream);
}

}  // namespace

void mv_held(const Product& p, const MvChoice& choice, cudaStream_t stream) {
    if (!mv_held_can(p, current_device(), choice.group, choice.sharers))
        throw std::runtime_error("[packedtri] a block cannot hold these matrices");
    with_element_type(p.dtype, [&](auto element) { launch<decltype(element)>(p, choice, stream); });
}

}  // namespace packedtri::cuda
