// From a Product to a launch of product_kernel.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "launch.h"
#include "product.cuh"

namespace packedtri::cuda {

// As product_kernel gives them tiles.
template <class T>
int64_t clusters(const ProductArgs<T>& args) {
    const auto [by_all, by_three, by_two] = args.shared;
    const int64_t beside = by_three - by_all, alone = args.items - by_two - beside;
    return by_three + ceil_div(by_two - by_three, 2) +
           (alone > 0 ? ceil_div(alone, args.split) : 0);
}

// How many clusters there is room for while each block has a multiprocessor for itself.
template <class T>
int64_t room_apart(const ProductArgs<T>& args) {
    return current_device().usable(args.split) / args.split;
}

template <class MainLoop, int BLOCKS_PER_SM>
void launch(typename MainLoop::Args args, cudaStream_t stream) {
    if (args.shared.by_two > args.shared.by_all && (!MainLoop::GRADED || args.split != 4))
        throw std::logic_error("[packedtri] a kernel whose sums are not shared gradually");
    const int64_t count = clusters(args), blocks = count * args.split, apart = room_apart(args);
    const int shared = keep_apart(shared_bytes<MainLoop>(args.split > 1), blocks, args.split);
    args.turned = BLOCKS_PER_SM > 1 && count > apart ? static_cast<int>(apart) : 0;
    const auto kernel = product_kernel<MainLoop, BLOCKS_PER_SM>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(blocks), dim3(MainLoop::THREADS), args, stream,
                       "cannot launch a product", args.split, shared);
}

// What the kernels are told about a product, whose result has tiles as Mma's.
template <class Mma, class T>
ProductArgs<T> arguments(const Product& p, const Config& config, const OrientedPanel<T>& a,
                         const OrientedPanel<T>& b) {
    using Real = typename Accumulator<T>::real;
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
    const bool lower = p.c.kind == Kind::Lower;
    // Sums are as long as the packed operand's side of a tile says.
    constexpr int side = std::min(Mma::BM, Mma::BN);
    const Schedule schedule = schedule_of(p, Mma::BM, Mma::BN, config.group);
    const auto longer = [&](int length) {
        return std::min(schedule.count_long(static_cast<int>(ceil_div(p.k, side)), length),
                        schedule.size()) *
               p.batch;
    };
    SharedTiles shared{};
    if (config.split > 1) {
        const int64_t by_all = longer(config.split_above);
        shared = {by_all, by_all, by_all};
    }
    if (config.graded > 0) {
        shared.by_three = longer(graded_above(config.graded, 3));
        shared.by_two = longer(graded_above(config.graded, 2));
    }
    return {a.panel,
            b.panel,
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
            a.k_major,
            b.k_major,
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
            0,
            shared,
            schedule,
            schedule.size() * p.batch};
}

// The same of a product whose kernel has no schedule of tiles.
struct AnyTile {
    static constexpr int BM = 64, BN = 64;
};
template <class T>
ProductArgs<T> arguments_without_tiles(const Product& p, const OrientedPanel<T>& a,
                                       const OrientedPanel<T>& b) {
    return arguments<AnyTile>(p, {Method::Direct, TileSize::Small, 1, 1, 1}, a, b);
}

// Launches `MainLoop<A is K-major, B is K-major>` on tiles of BM x BN, or with a symmetric operand `Mirrored`, if there is
// such a main loop.
template <template <bool, bool> class MainLoop, int BLOCKS_PER_SM, class Mirrored, class T>
void launch_oriented(const ProductArgs<T>& args, bool symmetric, cudaStream_t stream) {
    if constexpr (!std::is_void_v<Mirrored>)
        if (symmetric) return launch<Mirrored, BLOCKS_PER_SM>(args, stream);
    if (args.a_k_major && args.b_k_major) launch<MainLoop<true, true>, BLOCKS_PER_SM>(args, stream);
    else if (args.a_k_major) launch<MainLoop<true, false>, BLOCKS_PER_SM>(args, stream);
    else if (args.b_k_major) launch<MainLoop<false, true>, BLOCKS_PER_SM>(args, stream);
    else launch<MainLoop<false, false>, BLOCKS_PER_SM>(args, stream);
}

// The same of a product.
template <template <bool, bool> class MainLoop, int BLOCKS_PER_SM, class Mirrored = void>
void launch_product(const Product& p, const Config& config, cudaStream_t stream) {
    using T = typename MainLoop<true, true>::T;
    using Mma = typename MainLoop<true, true>::Mma;
    const auto args = arguments<Mma>(p, config, orient<T>(p.a, true), orient<T>(p.b, false));
    launch_oriented<MainLoop, BLOCKS_PER_SM, Mirrored>(args, has_symmetric(p), stream);
}

// The same of small tiles, but `Apart` and `MirroredApart` where each block has a multiprocessor for itself (most_few).
template <template <bool, bool> class MainLoop, class Mirrored, int BLOCKS_PER_SM,
          template <bool, bool> class Apart, class MirroredApart>
void launch_small(const Product& p, const Config& config, cudaStream_t stream) {
    using T = typename Mirrored::T;
    using Mma = typename Mirrored::Mma;
    const auto args = arguments<Mma>(p, config, orient<T>(p.a, true), orient<T>(p.b, false));
    constexpr int needed =
        std::max(shared_bytes<Apart<true, true>>(), shared_bytes<MirroredApart>());
    const bool fits = needed <= 1024 * current_device().shared_kib,
               differ = args.schedule.longest != Schedule::Longest::All;
    if (fits && clusters(args) <= most_few(room_apart(args), differ))
        launch_oriented<Apart, 1, MirroredApart>(args, has_symmetric(p), stream);
    else launch_oriented<MainLoop, BLOCKS_PER_SM, Mirrored>(args, has_symmetric(p), stream);
}

}  // namespace packedtri::cuda
