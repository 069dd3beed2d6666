// What images do not give of a product: a block of threads computes it from stored elements once it has no more tiles.
#pragma once

#include "engine.cuh"
#include "large_tile.cuh"
#include "product.cuh"

namespace packedtri::cuda {

// The warps that multiply compute the rows of tiles that they have left (EngineConsumer), as a direct product does.
template <class Shape, int PRODUCTS>
class EngineStored {
    using T = typename Shape::T;
    using Args = EngineArgs<T, PRODUCTS, Shape::PACKS>;
    static constexpr int THREADS = 32 * Shape::WARPS;
    template <class MainLoop>
    static constexpr int BYTES = shared_bytes<MainLoop>();

  public:
    __device__ __forceinline__ static void run(const Args& args,
                                               const EngineShared<Shape>& shared) {
        ptx::block_sync<THREADS>();
        if (*shared.left()) compute_all(args, shared);
    }

  private:
    // Apart from the code of tiles, which is slower with this in its way.
    __device__ __noinline__ static void compute_all(const Args& args,
                                                    const EngineShared<Shape>& shared) {
        // Which rows of as many tiles as there are threads, a bit for each of a tile's marks.
        auto* rows = reinterpret_cast<uint8_t*>(shared.staging());
        for (int product = 0; product < PRODUCTS; ++product) {
            const EngineProduct<T>& p = args.of[product];
            if (!p.marks) continue;
            const int columns = Marks::tiles(p.c.n), tiles = Marks::tiles(p.c.m) * columns;
            const int64_t all = int64_t{tiles} * args.alone.matrices;
            for (int64_t first = 0; first < all; first += THREADS) {
                const int64_t own = first + threadIdx.x;
                rows[threadIdx.x] = static_cast<uint8_t>(own < all ? left_of(p, own) : 0);
                if (!ptx::block_or<THREADS>(rows[threadIdx.x] != 0)) continue;
                for (int x = 0; x < THREADS; ++x) {
                    const int matrix = static_cast<int>((first + x) / tiles),
                              tile = static_cast<int>((first + x) % tiles);
                    for (uint32_t left = rows[x]; left != 0;) {
                        const int begin = __ffs(left) - 1, end = begin + __ffs(~(left >> begin)) - 1;
                        compute(p, matrix, {tile / columns, tile % columns, true},
                                begin * Marks::ROWS, end * Marks::ROWS, shared.base);
                        left &= ~0u << end;
                    }
                }
                ptx::block_sync<THREADS>();
            }
        }
    }

    // The rows of a tile that this block has left.
    __device__ static uint32_t left_of(const EngineProduct<T>& p, int64_t tile) {
        const int* marks = p.marks + tile * Marks::OF_TILE;
        uint32_t left = 0;
#pragma unroll
        for (int x = 0; x < Marks::OF_TILE; ++x)
            left |= (__ldcg(marks + x) == Marks::of_block(blockIdx.x) ? 1u : 0) << x;
        return left;
    }

    // A symmetric operand is the sum of its stored triangle and of the transpose of that, without the diagonal.
    __device__ static void compute(const EngineProduct<T>& p, int matrix, Schedule::Tile tile,
                                   int begin, int end, char* memory) {
        const bool a_symmetric = p.a.kind == Kind::Symmetric, b_symmetric = p.b.kind == Kind::Symmetric;
        ProductArgs<T> args = arguments(p);
        for (int a = 0; a <= a_symmetric; ++a) {
            if (a_symmetric) take_half(a == 1, args.a, args.a_kind, args.a_strict);
            for (int b = 0; b <= b_symmetric; ++b) {
                if (b_symmetric) take_half(b == 1, args.b, args.b_kind, args.b_strict);
                multiply(args, p.a_stored.at.k_major != (a == 1),
                         p.b_stored.at.k_major != (b == 1), matrix, tile, begin, end, memory);
                args.beta = 1;
            }
        }
    }
    __device__ static ProductArgs<T> arguments(const EngineProduct<T>& p) {
        ProductArgs<T> args{};
        args.a = p.a_stored.at.panel, args.b = p.b_stored.at.panel;
        args.a_batch_stride = p.a_stored.next, args.b_batch_stride = p.b_stored.next;
        args.a_kind = p.a.kind, args.b_kind = p.b.kind;
        args.a_strict = p.a_stored.strict, args.b_strict = p.b_stored.strict;
        args.c = p.c.data, args.c_ld = p.c.ld, args.c_batch_stride = p.c.next;
        args.c_packed = p.c.packed, args.c_lower = p.c.lower;
        args.alpha = p.c.alpha, args.beta = p.c.beta;
        args.m = p.c.m, args.n = p.c.n, args.k = p.k;
        return args;
    }
    __device__ static void take_half(bool upper, Panel<T>& panel, Kind& kind, bool& strict) {
        kind = upper ? Kind::Upper : Kind::Lower;
        strict = upper;
        panel.reach = upper ? 0 : 1;
    }

    __device__ static void multiply(const ProductArgs<T>& args, bool a_k_major, bool b_k_major,
                                    int matrix, const Schedule::Tile& tile, int begin, int end,
                                    char* memory) {
        if (a_k_major && b_k_major) multiply<true, true>(args, matrix, tile, begin, end, memory);
        else if (a_k_major) multiply<true, false>(args, matrix, tile, begin, end, memory);
        else if (b_k_major) multiply<false, true>(args, matrix, tile, begin, end, memory);
        else multiply<false, false>(args, matrix, tile, begin, end, memory);
    }
    template <bool A_K_MAJOR, bool B_K_MAJOR>
    __device__ __noinline__ static void multiply(const ProductArgs<T>& args, int matrix,
                                                 const Schedule::Tile& tile, int begin, int end,
                                                 char* memory) {
        using MainLoop = typename LargeTile<T, A_K_MAJOR, B_K_MAJOR>::MainLoop;
        static_assert(MainLoop::Mma::BM == Marks::SIDE && MainLoop::Mma::BN == Marks::SIDE);
        static_assert(MainLoop::THREADS == THREADS, "all warps that multiply");
        static_assert(BYTES<MainLoop> <= Shape::STAGES * Shape::STAGE_BYTES, "stages are too small");
        compute_tile<MainLoop>(args, tile, matrix, 0, 1, begin, end, memory);
        ptx::block_sync<THREADS>();  // All have been read when the next tile comes.
    }
};

}  // namespace packedtri::cuda
