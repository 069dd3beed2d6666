// From a Product to a launch of product_kernel.
#pragma once

#include <algorithm>

#include "launch.h"
#include "product.cuh"

namespace packedtri::cuda {

template <class MainLoop, int BLOCKS_PER_SM>
void launch(const ProductArgs<typename MainLoop::T>& args, cudaStream_t stream) {
    const int64_t blocks =
        (args.shared_items + ceil_div(args.items - args.shared_items, args.split)) * args.split;
    const int shared = keep_apart(shared_bytes<MainLoop>(args.split > 1), blocks, args.split);
    const auto kernel = product_kernel<MainLoop, BLOCKS_PER_SM>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(blocks), dim3(MainLoop::THREADS), args, stream,
                       "cannot launch a product", args.split, shared);
}

// What the kernels are told about a product, whose result has tiles as Mma's.
template <class Mma, class T>
ProductArgs<T> arguments(const Product& p, const Config& config, const Panel<T>& a,
                         const Panel<T>& b) {
    using Real = typename Accumulator<T>::real;
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
    const bool lower = p.c.kind == Kind::Lower;
    static_assert(Mma::BM == Mma::BN);
    const Schedule schedule = schedule_of(p, Mma::BM, config.group);
    const int64_t shared =
        config.split == 1
            ? 0
            : schedule.count_long(static_cast<int>(ceil_div(p.k, Mma::BM)), config.split_above);
    return {a,
            b,
            p.a.batch_stride,
            p.b.batch_stride,
            static_cast<T*>(p.c.data),
            lower && !p.c.staggered ? 0 : p.c.row_stride,
            p.c.batch_stride,
            lower || p.c.staggered,
            lower,
            static_cast<Real>(p.alpha),
            static_cast<Real>(p.beta),
            p.a.kind,
            p.b.kind,
            p.conj_b,
            p.a.strict,
            p.b.strict,
            p.a.hermitian,
            p.b.hermitian,
            m,
            n,
            static_cast<int>(p.k),
            static_cast<int>(p.batch),
            config.split,
            std::min(shared, schedule.size()) * p.batch,
            schedule,
            schedule.size() * p.batch};
}

// Launches `MainLoop<A is K-major, B is K-major>` on tiles of BM x BN.
template <template <bool, bool> class MainLoop, int BLOCKS_PER_SM>
void launch_product(const Product& p, const Config& config, cudaStream_t stream) {
    using T = typename MainLoop<true, true>::T;
    using Mma = typename MainLoop<true, true>::Mma;
    const OrientedPanel<T> a = orient<T>(p.a, true), b = orient<T>(p.b, false);
    const ProductArgs<T> args = arguments<Mma>(p, config, a.panel, b.panel);
    if (a.k_major && b.k_major) launch<MainLoop<true, true>, BLOCKS_PER_SM>(args, stream);
    else if (a.k_major) launch<MainLoop<true, false>, BLOCKS_PER_SM>(args, stream);
    else if (b.k_major) launch<MainLoop<false, true>, BLOCKS_PER_SM>(args, stream);
    else launch<MainLoop<false, false>, BLOCKS_PER_SM>(args, stream);
}

}  // namespace packedtri::cuda
