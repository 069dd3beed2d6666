// From an EnginePlan to a launch of engine_kernel.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "engine_kernel.cuh"
#include "engine_plan.h"
#include "launch.h"

namespace packedtri::cuda {

inline EngineOperand engine_operand(const EngineSource& s, const char* image, const int* ready) {
    const int64_t next = s.same ? 0 : s.mapped ? 1 : s.bytes;
    return {s.mapped ? nullptr : image, s.part_bytes, next, s.blocks, s.run, ready};
}

template <class T>
StoredOperand<T> stored_operand(const Operand& x, bool is_a) {
    return {orient<T>(x, is_a), x.batch_stride, x.strict};
}

template <class T>
EngineProduct<T> engine_product(const EnginePlan& plan) {
    const Product& p = plan.product;
    const bool lower = p.c.kind == Kind::Lower;
    return {plan.a_map,
            plan.b_map,
            engine_operand(plan.layout.a, plan.a_image, plan.a_ready),
            engine_operand(plan.layout.b, plan.b_image, plan.b_ready),
            {static_cast<T*>(p.c.data), lower && !p.c.staggered ? 0 : p.c.row_stride,
             p.c.batch_stride, lower || p.c.staggered, lower, static_cast<float>(p.alpha),
             static_cast<float>(p.beta), static_cast<int>(p.m), static_cast<int>(p.n),
             plan.config.joined ? static_cast<int>(p.b.cols) : 0},
            static_cast<int>(ceil_div(p.n, Image::SIDE)),
            static_cast<int>(ceil_div(p.k, Image::SIDE)),
            plan.layout.work,
            plan.marks,
            plan.lines,
            stored_operand<T>(p.a, true),
            stored_operand<T>(p.b, false),
            static_cast<int>(p.k),
            plan.layout.panels};
}

// Tiles of one number follow one another, of a product that has none there too.
template <class Shape, int PRODUCTS>
auto engine_args(const EnginePlan* plans, const EngineUnmade& unmade) {
    using T = typename Shape::T;
    EngineArgsOf<Shape, PRODUCTS> args{};
    args.split = plans[0].config.split;
    args.counters = plans[0].counters;
    int shared = 0, alone = 0;
    for (int t = 0; t < PRODUCTS; ++t) {
        const EngineWork& work = plans[t].layout.work;
        args.of[t] = engine_product<T>(plans[t]);
        shared = std::max(shared, PRODUCTS * work.shared_tiles);
        alone = std::max(alone, PRODUCTS * static_cast<int>(work.size()));
    }
    args.matrices = static_cast<int>(plans[0].product.batch);
    const bool panels = plans[0].layout.panels != Panels::None;
    // How many items take turns: enough to keep all blocks at work, and no more, for the L2 cache to hold what they
    // read. Of panels with many tiles, the short sums read little of that. They come last, so that all blocks end
    // together.
    const int matrices = panels ? plans[0].layout.panel_count : args.matrices,
              slots = current_device().multiprocessors / Shape::CLUSTER,
              items = panels ? slots : 4 * slots;
    const bool differ = plans[0].layout.work.schedule.longest != Schedule::Longest::All;
    const int tail =
        panels && differ && alone >= 8 ? alone / (matrices * alone >= 12 * slots ? 4 : 2) : 0;
    args.shared = batch_order(matrices, shared, items);
    args.alone = batch_order(matrices, alone, items, tail);
    if constexpr (Shape::PACKS) {
        args.packing.work = unmade.work;
        for (int x = 0; x < unmade.count; ++x) args.packing.of[x] = pack_args<T>(unmade.images[x]);
    }
    if constexpr (EngineArgsOf<Shape, PRODUCTS>::STORES)
        args.storing = {plans[0].c_map, plans[0].c_mapped};
    if constexpr (Shape::CUTS) {
        const EngineLayout& layout = plans[0].layout;
        args.cutting = {layout.cut, plans[0].part_words, plans[0].part_sums,
                        layout.places * EngineLayout::WORDS_OF_PLACE,
                        layout.places * EngineLayout::SUMS_OF_PLACE};
    }
    return args;
}

// Computes what the launch before has left of products that may have any of it.
template <class Shape, int PRODUCTS>
void launch_stored(const EnginePlan* plans, const EngineArgsOf<Shape, PRODUCTS>& args,
                   cudaStream_t stream) {
    if (std::none_of(plans, plans + PRODUCTS, [](const EnginePlan& p) { return p.marks; })) return;
    const auto kernel = engine_stored_kernel<Shape, PRODUCTS>;
    allow_shared(kernel);
    launch_overlapping(kernel, dim3(static_cast<unsigned>(current_device().multiprocessors)),
                       32 * Shape::WARPS, args, stream, "cannot launch the rest of a product", 1,
                       Shape::SHARED_BYTES);
}

template <class Shape, int PRODUCTS, class Across>
void launch_kernel(const EnginePlan* plans, const EngineUnmade& unmade, cudaStream_t stream) {
    auto args = engine_args<Shape, PRODUCTS>(plans, unmade);
    static_assert(sizeof(args) <= 4096, "a kernel has no more room for arguments");
    const auto kernel = engine_kernel<Shape, PRODUCTS, Across>;
    allow_shared(kernel);
    const int cluster = Shape::CLUSTER * args.split;
    const int64_t needed = args.shared_items() + ceil_div(args.lone_items(), args.split);
    const int64_t clusters = std::min<int64_t>(
        {needed, clusters_at_once(kernel, Shape::THREADS, Shape::SHARED_BYTES, cluster),
         MOST_DEALT / args.split});
    if constexpr (!Shape::PACKS)
        args.dealing.count =
            deal_first(args, static_cast<int>(clusters), args.split, args.dealing.first);
    // The kernel sets itself up while the images are still being made.
    launch_overlapping(kernel, dim3(static_cast<unsigned>(clusters * cluster)), Shape::THREADS,
                       args, stream, "cannot launch a product", cluster, Shape::SHARED_BYTES);
    if constexpr (Shape::PACKS) launch_stored<Shape, PRODUCTS>(plans, args, stream);
}

template <class Shape>
void launch_engine(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                   cudaStream_t stream) {
    const Run &run_a = plans[0].layout.a.run, &run_b = plans[0].layout.b.run;
    const bool a = run_a.across, b = run_b.across;
    if (run_a.turns || run_b.turns) {
        if constexpr (Shape::TURNS) launch_kernel<Shape, 1, AcrossByStep>(plans, unmade, stream);
        else throw std::runtime_error("[packedtri] no such tiles read half of a symmetric matrix");
    } else if (count > 1) {
        if constexpr (Shape::CUTS)
            throw std::runtime_error("[packedtri] sums of two products are cut");
        else launch_kernel<Shape, 2, AcrossByTile>(plans, unmade, stream);
    } else if constexpr (Shape::CLUSTER > 1 && !Shape::SCALED) {
        // Large tiles of 16-bit elements are as fast, and take a quarter of the time to compile.
        launch_kernel<Shape, 1, AcrossByTile>(plans, unmade, stream);
    } else if (a && b) launch_kernel<Shape, 1, Across<true, true>>(plans, unmade, stream);
    else if (a) launch_kernel<Shape, 1, Across<true, false>>(plans, unmade, stream);
    else if (b) launch_kernel<Shape, 1, Across<false, true>>(plans, unmade, stream);
    else launch_kernel<Shape, 1, Across<false, false>>(plans, unmade, stream);
}

}  // namespace packedtri::cuda
