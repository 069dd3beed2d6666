// A Cholesky factor, or a panel of its columns, by one launch whose blocks wait for each other's tiles.
#include <algorithm>

#include "factor_steps.cuh"
#include "hopper.cuh"
#include "leaf.h"
#include "line_steps.cuh"
#include "mma_f64.cuh"
#include "mma_simt.cuh"

namespace packedtri::cuda {
namespace {

constexpr int SIDE = 64, HALF = SIDE / 2, PITCH = SharedTriangle<float>::pitch_of(SIDE);
constexpr int IMAGE = SIDE * PITCH;  // Elements of a tile as it lies in shared memory: by columns.

template <class T>
struct PanelArgs {
    T* packed;
    int64_t batch_stride;
    int32_t* info;
    T* images;  // Finished tiles as they lie in shared memory, those on the diagonal as solves need them.
    int *ready, *ticket;  // A word for each tile, not 0 once it is finished; the next item.
    int n, begin, rows, cols,
        batch;  // The panel begins at column `begin`, and has rows x cols tiles.

    // Tiles of the first `i` rows, in which none lies above the diagonal.
    __host__ __device__ int64_t before_row(int i) const {
        return i <= cols ? row_start<int64_t>(i)
                         : int64_t{i} * cols - int64_t{cols} * (cols - 1) / 2;
    }
    __host__ __device__ int64_t tiles() const { return before_row(rows); }  // Of a matrix.
    __device__ int64_t number(int b, int i, int j) const { return b * tiles() + before_row(i) + j; }
    // Tiles below the diagonal, and the first one on it.
    __host__ __device__ int64_t items() const { return batch * (tiles() - cols + 1); }
};

// What multiplies tiles that lie by columns: steps of STEP columns, 4 x 2 warps of 16 x 32 elements, or 2 x 2 of 32 x 32.
template <class T>
struct Multiplier {
    using type = MmaSimt<T, SIDE, SIDE, STEP, sizeof(T) <= 8 ? 8 : 4, 4>;
};
template <>
struct Multiplier<double> {
    using type = MmaF64<SIDE, SIDE, STEP, 32, 32>;
};

// Items are tiles, drawn one after another column by column, and each is the work of one block: it takes from the tile
// what the columns before contribute, as they become ready, and solves with the tile on the diagonal. The block of the
// first tile below a diagonal goes on to that beside it on the next one, so that the chain of these, which is what
// takes time, goes from one block to the next once a column. An item waits only for items that were drawn before.
template <class T>
class PanelFactor {
    static constexpr int STAGE = 2 * HALF * PITCH;  // Half a tile of each operand.
    static constexpr int WORD = 16 / sizeof(T);
    using Sums = typename Multiplier<T>::type;
    struct alignas(16) Word {
        T x[WORD];
    };

  public:
    static constexpr int THREADS = Sums::THREADS;
    static constexpr int SHARED_BYTES = (2 * STAGE + IMAGE) * static_cast<int>(sizeof(T));

    __device__ PanelFactor(const PanelArgs<T>& args, T* shared, bool& next_is_ready)
        : args_(args), stages_(shared), x_{shared + 2 * STAGE, PITCH},
          next_is_ready_(next_is_ready) {}

    // Item number `item`.
    __device__ void run(int item) {
        int j = -1,
            count =
                args_.batch;  // Items of column j; the first tile on the diagonal comes before all.
        for (; item >= count; count = args_.batch * (args_.rows - 1 - j)) {
            item -= count;
            ++j;
        }
        b_ = item % args_.batch;
        const int i = j + 1 + item / args_.batch;
        memory_ = args_.packed + b_ * args_.batch_stride;
        if (i == j + 1 && i < args_.cols) to_diagonal(i, j);
        else below(i, j);
    }

  private:
    // A tile below the diagonal.
    __device__ void below(int i, int j) {
        Sums none;
        solve<false>(none, i, j);
        write_image(x_, i, j);
        __syncthreads();
        announce(i, j);
        store(i, j);
    }

    // The first tile below a diagonal, unless there is none, and that on the diagonal beside it. They are stored when
    // the next block can go on.
    __device__ void to_diagonal(int i, int j) {
        const SharedTriangle<T> a{stages_, PITCH};
        Sums rest;
        load_diagonal(rest, i);
        if (j >= 0) {
            solve<true>(rest, i, j);
            write_image(x_, i, j);
            __syncthreads();
            announce(i, j);
            add_square<SIDE>(rest, x_.data);
        }
        for_words(rest, [&](int r, int c, T* sums) {
            Word& to = word_at(a, r, c);
#pragma unroll
            for (int e = 0; e < WORD; ++e) to.x[e] = scale(conjugate_if(sums[e], true), Real(-1));
        });
        __syncthreads();
        const int failed = FactorSteps<T>(a, SIDE).run();
        // Solves take reciprocals, and conjugates.
        if (threadIdx.x < SIDE) {
            const int row = first(i) + threadIdx.x;
            T& x = a.at(threadIdx.x, threadIdx.x);
            if (row < args_.n) memory_[row_start<int64_t>(row) + row] = x;
            x = divide(one<T>(), x);
        }
        __syncthreads();
        write_image(a, i, i, true);
        if (threadIdx.x == 0) {
            int32_t& info = args_.info[b_];
            const int order = failed > 0 ? first(i) + failed : 0;
            if (first(i) == 0 || (order > 0 && info == 0)) info = order;
        }
        __syncthreads();
        announce(i, i);
        for_tile(i, i, [&](int r, int c, T* place) {
            if (place && c < r) *place = a.at(r, c);
        });
        if (j >= 0) store(i, j);
    }

    // The tile in shared memory becomes that of the factor. Its row of tiles contributes to `rest` of its diagonal, if
    // there is one.
    template <bool TO_DIAGONAL>
    __device__ void solve(Sums& rest, int i, int j) {
        for_tile(i, j, [&](int r, int c, T* place) {
            ptx::cp_async<sizeof(T)>(ptx::shared_address(&x_.at(r, c)), place ? place : memory_,
                                     place != nullptr);
        });
        ptx::cp_async_commit();
        Sums sums;
        conjugate(sums);
        if (j > 0) add_before<TO_DIAGONAL>(sums, rest, i, j);
        else ptx::cp_async_wait<0>();
        __syncthreads();
        for_words(sums, [&](int r, int c, T* sum) {
            Word& to = word_at(x_, r, c);
#pragma unroll
            for (int e = 0; e < WORD; ++e)
                to.x[e] = difference(to.x[e], conjugate_if(sum[e], true));
        });
        await(j, j);
        copy_words(ptx::shared_address(stages_), image(j, j), IMAGE);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        __syncthreads();
        LineSteps<T, SIDE, PITCH>({stages_, PITCH}, x_.data).run(SIDE);
    }

    // Adds what the columns before contribute. The second half of a tile is copied while the first is multiplied, and
    // the first of the next tile while the second is, if it was ready before that.
    template <bool TO_DIAGONAL>
    __device__ void add_before(Sums& sums, Sums& rest, int i, int j) {
        await(i, 0);
        await(j, 0);
        copy_half(i, j, 0);
        for (int half = 0; half < 2 * j; ++half) {
            const int next = half + 1;
            const bool more = next < 2 * j, early = more && (next % 2 == 1 || next_is_ready_);
            if (early) {
                copy_half(i, j, next);
                ptx::cp_async_wait<1>();
            } else {
                ptx::cp_async_wait<0>();
            }
            __syncthreads();
            int ready = 0;
            if (threadIdx.x == 0 && next % 2 == 1 && next + 1 < 2 * j)
                ready = ptx::load_relaxed(word(i, next / 2 + 1)) &
                        ptx::load_relaxed(word(j, next / 2 + 1));
            const T *p = stages_ + half % 2 * STAGE, *q = p + HALF * PITCH;
            add_product<HALF>(sums, p, q);
            if constexpr (TO_DIAGONAL) add_square<HALF>(rest, p);
            if (threadIdx.x == 0) {
                if (ready) ptx::acquire();
                next_is_ready_ = ready != 0;
            }
            __syncthreads();
            if (more && !early) {
                await(i, next / 2);
                await(j, next / 2);
                copy_half(i, j, next);
            }
        }
    }

    __device__ void copy_half(int i, int j, int half) {
        constexpr int COUNT = HALF * PITCH;
        const uint32_t to = ptx::shared_address(stages_ + half % 2 * STAGE);
        copy_words(to, image(i, half / 2) + half % 2 * COUNT, COUNT);
        copy_words(to + COUNT * sizeof(T), image(j, half / 2) + half % 2 * COUNT, COUNT);
        ptx::cp_async_commit();
    }

    __device__ void copy_words(uint32_t to, const T* from, int elements) {
        const int words = elements / WORD;
#pragma unroll 4
        for (int w = threadIdx.x; w < words; w += THREADS)
            ptx::cp_async_past_l1(to + w * 16, reinterpret_cast<const uint4*>(from) + w);
    }

    // sums += Q P^H, of DEPTH columns: the transposed product, of which a lane has neighbours in a column.
    template <int DEPTH>
    __device__ static void add_product(Sums& sums, const T* p, const T* q) {
        using Layout = TileLayout<SIDE, STEP, false, PITCH - SIDE>;
#pragma unroll 1
        for (int k = 0; k < DEPTH; k += STEP)
            sums.template step<Layout, Layout>(q + k * PITCH, p + k * PITCH, [](int) {});
    }
    // Of a product with itself the lower half is needed.
    template <int DEPTH>
    __device__ static void add_square(Sums& sums, const T* p) {
        if (sums.warp_col() + Sums::WN > sums.warp_row()) add_product<DEPTH>(sums, p, p);
    }
    __device__ static void conjugate(Sums& sums) {
        if constexpr (is_complex<T>) sums.conj_b = true;
    }

    // Calls f(row, column, sums) for neighbours in a column that fill a word.
    template <class F>
    __device__ static void for_words(Sums& sums, F f) {
#pragma unroll
        for (int e = 0; e < Sums::ACCS; e += WORD)
            f(sums.col0 + Sums::col_of_acc(e), sums.row0 + Sums::row_of_acc(e), sums.acc + e);
    }
    __device__ static Word& word_at(const SharedTriangle<T>& a, int r, int c) {
        return reinterpret_cast<Word&>(a.at(r, c));
    }

    // What is to be factored, with the opposite sign. Places behind the matrix are those of an identity matrix.
    __device__ void load_diagonal(Sums& rest, int i) {
        conjugate(rest);
        for_words(rest, [&](int r0, int c, T* sums) {
#pragma unroll
            for (int e = 0; e < WORD; ++e) {
                const int r = r0 + e, row = first(i) + r;
                T x = r == c ? one<T>() : T{};
                if (c <= r && row < args_.n) x = memory_[row_start<int64_t>(row) + first(i) + c];
                sums[e] = scale(conjugate_if(x, true), Real(-1));
            }
        });
    }

    __device__ void write_image(const SharedTriangle<T>& a, int i, int j, bool conj = false) const {
        Word* const to = reinterpret_cast<Word*>(image(i, j));
#pragma unroll 4
        for (int w = threadIdx.x; w < IMAGE / WORD; w += THREADS) {
            Word word = reinterpret_cast<const Word*>(a.data)[w];
#pragma unroll
            for (T& x : word.x) x = conjugate_if(x, conj);
            to[w] = word;
        }
    }

    __device__ void store(int i, int j) {
        for_tile(i, j, [&](int r, int c, T* place) {
            if (place) *place = x_.at(r, c);
        });
    }

    // Calls f(row, column, place or null) for the elements of a tile that this thread loads or stores.
    template <class F>
    __device__ void for_tile(int i, int j, F f) {
        for_rectangle(SIDE, SIDE, [&](int r, int c) {
            const int row = first(i) + r;
            f(r, c, row < args_.n ? memory_ + row_start<int64_t>(row) + first(j) + c : nullptr);
        });
    }

    // The first row of tiles (i, j), and the first column of tiles (j, i).
    __device__ int first(int i) const { return args_.begin + i * SIDE; }
    __device__ T* image(int i, int j) const {
        return args_.images + args_.number(b_, i, j) * IMAGE;
    }
    __device__ int* word(int i, int j) const { return args_.ready + args_.number(b_, i, j); }
    // For all threads: one of them looks.
    __device__ void await(int i, int j) const {
        if (threadIdx.x == 0)
            while (ptx::load_acquire(word(i, j)) == 0) {
            }
        __syncthreads();
    }
    // When all threads have written the image and met. That takes time, which the warp has that add_square leaves out.
    __device__ void announce(int i, int j) const {
        if (threadIdx.x == THREADS / 4) ptx::release_increment(word(i, j));
    }

    using Real = typename RealPart<T>::type;
    const PanelArgs<T>& args_;
    T* const stages_;            // Two, of half a tile of each operand; then a triangle.
    const SharedTriangle<T> x_;  // The tile.
    bool& next_is_ready_;        // In shared memory.
    int b_;
    T* memory_;
};

template <class T>
__global__ void __launch_bounds__(PanelFactor<T>::THREADS)
    panel_kernel(const __grid_constant__ PanelArgs<T> args) {
    extern __shared__ __align__(16) char shared[];
    __shared__ int drawn;
    __shared__ bool next_is_ready;
    start_leaf();
    PanelFactor<T> factor(args, reinterpret_cast<T*>(shared), next_is_ready);
    const int items = static_cast<int>(args.items());
    while (true) {
        if (threadIdx.x == 0) drawn = atomicAdd(args.ticket, 1);
        __syncthreads();
        const int item = drawn;
        if (item >= items) return;
        factor.run(item);
        __syncthreads();
    }
}

}  // namespace

bool factor_panel(const Factor& p, Span panel, Scratch& scratch, cudaStream_t stream) {
    bool done = false;
    with_solved_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        using Panel = PanelFactor<T>;
        const Device& device = current_device();
        if (Panel::SHARED_BYTES > device.shared_kib * 1024) return;
        PanelArgs<T> args{};
        args.batch_stride = p.batch_stride;
        args.n = static_cast<int>(p.n);
        args.begin = static_cast<int>(panel.begin);
        args.rows = static_cast<int>(ceil_div(p.n - panel.begin, SIDE));
        args.cols = static_cast<int>(ceil_div(panel.length(), SIDE));
        // As many matrices at once as have room for their images.
        const int64_t image_bytes = IMAGE * static_cast<int64_t>(sizeof(T)),
                      tile_bytes = image_bytes + static_cast<int64_t>(sizeof(int)),
                      at_once = std::clamp<int64_t>(
                          PANEL_IMAGES_LIMIT / (args.tiles() * tile_bytes), 1, p.batch),
                      tiles = at_once * args.tiles();
        if (at_once * args.tiles() > INT32_MAX) return;
        char* const memory = static_cast<char*>(
            scratch.reserve_if_free(tiles * tile_bytes + static_cast<int64_t>(sizeof(int))));
        if (!memory) return;
        args.images = reinterpret_cast<T*>(memory);
        args.ready = reinterpret_cast<int*>(memory + tiles * image_bytes);
        args.ticket = args.ready + tiles;
        for (int64_t b = 0; b < p.batch; b += at_once) {
            args.packed = static_cast<T*>(p.packed) + b * p.batch_stride;
            args.info = p.info + b;
            args.batch = static_cast<int>(std::min(at_once, p.batch - b));
            check(cudaMemsetAsync(args.ready, 0, (tiles + 1) * sizeof(int), stream),
                  "cannot clear the words of a panel");
            const int64_t blocks =
                int64_t{device.multiprocessors} *
                panel_blocks(args.batch, args.items(), device, Panel::SHARED_BYTES);
            launch_leaf(panel_kernel<T>, std::min(args.items(), blocks), Panel::THREADS,
                        Panel::SHARED_BYTES, args, stream);
        }
        done = true;
    });
    return done;
}

}  // namespace packedtri::cuda
