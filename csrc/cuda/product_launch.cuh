// From a Product to a launch of product_kernel.
#pragma once

#include <algorithm>
#include <limits>

#include "launch.h"
#include "product.cuh"

namespace packedtri::cuda {

// An operand, and whether its memory rows run along k.
template <class T>
struct OrientedPanel {
    Panel<T> panel;
    bool k_major;
};

template <class T>
OrientedPanel<T> orient(const Operand& x, bool is_a) {
    const T* data = static_cast<const T*>(x.data);
    const int rows = static_cast<int>(x.rows), cols = static_cast<int>(x.cols);
    // In memory rows: a packed triangle read as it is, or transposed; a dense matrix by rows, or by
    // columns.
    const bool by_rows =
        x.kind == Kind::Dense ? x.col_stride == 1 || cols <= 1 : x.kind == Kind::Lower;
    const Panel<T> panel{data, by_rows ? x.row_stride : x.col_stride, by_rows ? rows : cols,
                         by_rows ? cols : rows, x.kind != Kind::Dense};
    return {panel, by_rows == is_a};
}

template <class MainLoop, int BLOCKS_PER_SM>
void launch(const ProductArgs<typename MainLoop::T>& args, cudaStream_t stream) {
    constexpr int shared = shared_bytes<MainLoop>();
    const auto kernel = product_kernel<MainLoop, BLOCKS_PER_SM>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "cannot reserve shared memory");
    const int64_t items = args.schedule.size() * args.batch,
                  blocks = (args.shared_items + ceil_div(items - args.shared_items, args.split)) *
                           args.split;
    if (blocks > std::numeric_limits<int32_t>::max())
        throw std::runtime_error("[packedtri] the batch is too large for one launch");
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(MainLoop::THREADS);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(args.split);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = args.split > 1 ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, args), "cannot launch a product");
}

// What the kernels are told about a product, whose result has tiles as Mma's.
template <class Mma, class T>
ProductArgs<T> arguments(const Product& p, const Config& config, const Panel<T>& a,
                         const Panel<T>& b) {
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
    const Schedule schedule{static_cast<int>(ceil_div(m, Mma::BM)),
                            static_cast<int>(ceil_div(n, Mma::BN)), config.group,
                            p.c.kind == Kind::Lower, longest_first(p.a.kind, p.b.kind)};
    const int64_t shared =
        config.split == 1
            ? 0
            : schedule.count_long(static_cast<int>(ceil_div(p.k, Mma::BM)), config.split_above);
    return {a,
            b,
            p.a.batch_stride,
            p.b.batch_stride,
            static_cast<T*>(p.c.data),
            p.c.row_stride,
            p.c.batch_stride,
            p.c.kind == Kind::Lower,
            p.a.kind,
            p.b.kind,
            m,
            n,
            static_cast<int>(p.k),
            static_cast<int>(p.batch),
            config.split,
            std::min(shared, schedule.size()) * p.batch,
            schedule};
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
