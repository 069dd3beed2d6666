// What images do not give of a product is computed from stored elements: by each block of threads, once it has no more
// tiles, what it has left; or where calls would take registers from the warps that make images, by a launch behind.
#pragma once

#include "engine.cuh"
#include "large_tile.cuh"
#include "product.cuh"

namespace packedtri::cuda {

// Rows [begin, end) of a tile as a direct product has them. A call, and one function for all kernels: compilers take minutes
// for it.
template <class MainLoop>
__device__ __noinline__ void compute_large_tile(const typename MainLoop::Args& args,
                                                const Schedule::Tile& tile, int matrix, int begin,
                                                int end, char* memory) {
    compute_tile<MainLoop>(args, tile, matrix, {}, begin, end, memory);
}

// The warps that multiply compute the rows of tiles that they have left (EngineConsumer), and those that depend on
// lines which have lost too much (EngineChecker), as a direct product does.
template <class Shape, int PRODUCTS>
class EngineStored {
    using T = typename Shape::T;
    using Args = EngineArgsOf<Shape, PRODUCTS>;
    static constexpr int THREADS = 32 * Shape::WARPS;
    template <class MainLoop>
    static constexpr int BYTES = shared_bytes<MainLoop>();

  public:
    __device__ __forceinline__ static void run(const Args& args,
                                               const EngineShared<Shape>& shared) {
        if (Shape::SCALED) ptx::barrier_sync(CHECKED, THREADS + 32);
        else ptx::block_sync<THREADS>();
        if (*shared.left() || (Shape::SCALED && *shared.lossy())) compute_all(args, shared);
    }
    // To be called by the warp of the checker when it is done.
    __device__ __forceinline__ static void checked() {
        __syncwarp();
        ptx::barrier_sync(CHECKED, THREADS + 32);
    }

    // The whole of a launch.
    __device__ static void run_alone(const Args& args, const EngineShared<Shape>& shared) {
        ptx::wait_for_dependency();
        if (args.counters[EngineCounters::LEFT]) compute_all(args, shared);
    }

  private:
    static constexpr int CHECKED = 1;  // A barrier.

    // Apart from the code of tiles, which is slower with this in its way.
    __device__ __noinline__ static void compute_all(const Args& args,
                                                    const EngineShared<Shape>& shared) {
        // Which rows of as many tiles as there are threads.
        auto* rows = reinterpret_cast<uint16_t*>(shared.staging());
        for (int product = 0; product < PRODUCTS; ++product) {
            const EngineProduct<T>& p = args.of[product];
            if (!p.marks) continue;
            const int64_t all =
                int64_t{Marks::count(p.c.m, p.c.n) / Marks::OF_TILE} * args.matrices;
            for (int64_t first = 0; first < all; first += THREADS) {
                const int own = ptx::thread_of<THREADS>();
                const uint32_t found = first + own < all ? rows_of(p, first + own) : 0;
                rows[own] = static_cast<uint16_t>(found);
                if (!ptx::block_or<THREADS>(found != 0)) continue;
                for (int x = 0; x < THREADS; ++x)
                    for (uint32_t left = rows[x]; left != 0;) {
                        const int begin = __ffs(left) - 1,
                                  end = begin + __ffs(~(left >> begin)) - 1;
                        compute(p, tile_at(p, first + x), begin * Marks::ROWS, end * Marks::ROWS,
                                shared.base);
                        left &= ~0u << end;
                    }
                ptx::block_sync<THREADS>();
            }
        }
    }

    // Tiles of all matrices are numbered as their marks lie.
    struct Tile {
        int matrix, i, j;
    };
    __device__ static Tile tile_at(const EngineProduct<T>& p, int64_t number) {
        const int columns = Marks::tiles(p.c.n), tiles = Marks::tiles(p.c.m) * columns;
        const int within = static_cast<int>(number % tiles);
        return {static_cast<int>(number / tiles), within / columns, within % columns};
    }

    // The rows of a tile that this block is to compute, a bit for each of its marks.
    __device__ static uint32_t rows_of(const EngineProduct<T>& p, int64_t number) {
        uint32_t left = 0, stored = 0;
#pragma unroll
        for (int x = 0; x < Marks::OF_TILE; ++x) {
            const int mark = __ldcg(p.marks + number * Marks::OF_TILE + x);
            const bool own = Shape::PACKS ? mark > 0 && number % gridDim.x == blockIdx.x
                                          : mark == Marks::left_by(blockIdx.x);
            left |= (own ? 1u : 0) << x;
            stored |= (mark == Marks::stored_by(blockIdx.x) ? 1u : 0) << x;
        }
        return Shape::SCALED ? left | (stored & lossy_rows(p, tile_at(p, number))) : left;
    }
    // Those that depend on lines which have lost too much.
    __device__ static uint32_t lossy_rows(const EngineProduct<T>& p, const Tile& tile) {
        constexpr int LINES = Marks::SIDE / Image::SIDE, OF_LINE = Marks::OF_TILE / LINES;
        uint32_t rows = 0;
        for (int x = 0; x < LINES; ++x) {
            const int i = tile.i * LINES + x, j = tile.j * LINES + x;
            if (i < p.m_blocks() && __ldcg(p.line(tile.matrix, true, i)))
                rows |= ((1u << OF_LINE) - 1) << x * OF_LINE;
            if (j < p.n_blocks && __ldcg(p.line(tile.matrix, false, j))) rows = ~0u;
        }
        return rows;
    }

    // Of joined columns each block by itself, as a matrix of no more.
    __device__ static void compute(const EngineProduct<T>& p, const Tile& tile, int begin, int end,
                                   char* memory) {
        const ProductArgs<T> args = arguments(p);
        if (p.c.joined == 0) return compute(args, p, tile, begin, end, memory);
        constexpr int SIDE = Image::SIDE, BLOCKS = Marks::SIDE / SIDE;
        for (int x = 0; x < BLOCKS; ++x) {
            const int j = (tile.j * BLOCKS + x) * SIDE;
            if (j >= p.c.n) break;
            ProductArgs<T> of_block = args;
            Panel<T>& b = of_block.b;
            const bool across = p.b.run.across;
            const int first = j % p.c.joined;
            b.data += j / p.c.joined * p.b_stored.next + (across ? first : b.row_offset(first));
            (across ? b.cols : b.rows) = SIDE;
            b.end = b.row_offset(b.rows - 1) + b.length(b.rows - 1);
            of_block.c += p.c.column(j);
            of_block.n = SIDE;
            compute(of_block, p, {0, tile.i, 0}, begin, end, memory);
        }
    }
    // A symmetric operand is the sum of its stored triangle and of the transpose of that, without the diagonal.
    __device__ static void compute(ProductArgs<T> args, const EngineProduct<T>& p, const Tile& tile,
                                   int begin, int end, char* memory) {
        const bool a_symmetric = p.a.run.kind == Kind::Symmetric,
                   b_symmetric = p.b.run.kind == Kind::Symmetric;
        for (int a = 0; a <= a_symmetric; ++a) {
            if (a_symmetric) take_half(a == 1, args.a, args.a_kind, args.a_strict);
            for (int b = 0; b <= b_symmetric; ++b) {
                if (b_symmetric) take_half(b == 1, args.b, args.b_kind, args.b_strict);
                multiply(args, p.a_stored.at.k_major != (a == 1), p.b_stored.at.k_major != (b == 1),
                         tile, begin, end, memory);
                args.beta = 1;
            }
        }
    }
    __device__ static ProductArgs<T> arguments(const EngineProduct<T>& p) {
        ProductArgs<T> args{};
        args.a = p.a_stored.at.panel, args.b = p.b_stored.at.panel;
        args.a_batch_stride = p.a_stored.next, args.b_batch_stride = p.b_stored.next;
        args.a_kind = p.a.run.kind, args.b_kind = p.b.run.kind;
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
                                    const Tile& tile, int begin, int end, char* memory) {
        const Schedule::Tile at{tile.i, tile.j, true};
        if (a_k_major && b_k_major) multiply<true, true>(args, at, tile.matrix, begin, end, memory);
        else if (a_k_major) multiply<true, false>(args, at, tile.matrix, begin, end, memory);
        else if (b_k_major) multiply<false, true>(args, at, tile.matrix, begin, end, memory);
        else multiply<false, false>(args, at, tile.matrix, begin, end, memory);
        ptx::block_sync<THREADS>();  // All have been read when the next tile comes.
    }
    template <bool A_K_MAJOR, bool B_K_MAJOR>
    __device__ static void multiply(const ProductArgs<T>& args, const Schedule::Tile& tile,
                                    int matrix, int begin, int end, char* memory) {
        using MainLoop = typename LargeTile<T, A_K_MAJOR, B_K_MAJOR>::MainLoop;
        static_assert(MainLoop::Mma::BM == Marks::SIDE && MainLoop::Mma::BN == Marks::SIDE);
        static_assert(MainLoop::THREADS == THREADS, "all warps that multiply");
        static_assert(BYTES<MainLoop> <= Shape::STAGES * Shape::STAGE_BYTES,
                      "stages are too small");
        compute_large_tile<MainLoop>(args, tile, matrix, begin, end, memory);
    }
};

template <class Shape, int PRODUCTS>
__global__ void __launch_bounds__(32 * Shape::WARPS, 1)
    engine_stored_kernel(const __grid_constant__ EngineArgsOf<Shape, PRODUCTS> args) {
#if PACKEDTRI_HOPPER
    extern __shared__ __align__(1024) char memory[];
    EngineStored<Shape, PRODUCTS>::run_alone(args, EngineShared<Shape>{memory});
#endif
}

}  // namespace packedtri::cuda
