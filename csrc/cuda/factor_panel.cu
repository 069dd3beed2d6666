// A Cholesky factor, or a panel of its columns, by one launch.
#include <algorithm>

#include "factor_steps.cuh"
#include "leaf.h"
#include "line_steps.cuh"
#include "panel_tiles.cuh"

namespace packedtri::cuda {
namespace {

template <class T>
struct PanelArgs {
    T* packed;
    int64_t batch_stride;
    int32_t* info;
    T* images;            // Those of the diagonal as solves need them.
    int *ticket, *ready;  // The next item; a word for each tile.
    // The panel begins at column `begin`, and has rows x cols tiles.
    int n, begin, rows, cols, batch;

    // Tiles of the first `i` rows, in which none lies above the diagonal.
    __host__ __device__ int64_t before_row(int i) const {
        return i <= cols ? row_start<int64_t>(i)
                         : int64_t{i} * cols - int64_t{cols} * (cols - 1) / 2;
    }
    __host__ __device__ int64_t tiles() const { return before_row(rows); }  // Of a matrix.
    // Tiles below the diagonal, and the first one on it.
    __host__ __device__ int64_t items() const { return batch * (tiles() - cols + 1); }
};

// Items are tiles, column by column, and each is the work of one block: it takes from the tile what the columns before
// contribute, as they become ready, and solves with the tile on the diagonal. The block of the first tile below a
// diagonal goes on to that beside it on the next one, so that the chain of these, which is what takes time, goes from
// one block to the next once a column.
template <class T>
class PanelFactor : PanelTiles<T> {
    using Base = PanelTiles<T>;
    using typename Base::Image;
    using typename Base::Sums;
    using typename Base::Word;
    using Real = typename RealPart<T>::type;
    using Base::WORD;
    using Base::x_;

  public:
    using Args = PanelArgs<T>;
    using Base::SHARED_BYTES;
    using Base::THREADS;

    __device__ PanelFactor(const Args& args, char* shared, bool& next_is_ready)
        : Base(reinterpret_cast<T*>(shared), next_is_ready), args_(args) {}

    // Item number `item`: of the first tile on the diagonal, then of those below it column by column.
    __device__ void run(int item) {
        int j = -1, count = args_.batch;
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
        store(i, j);
    }

    // The first tile below a diagonal, unless there is none, and that on the diagonal beside it. They are stored when
    // the next block can go on.
    __device__ void to_diagonal(int i, int j) {
        const SharedTriangle<T> a = this->second();
        Sums rest;
        load_diagonal(rest, i);
        if (j >= 0) {
            solve<true>(rest, i, j);
            Base::template add_square<PANEL_TILE>(rest, x_.data);
        }
        this->for_words(rest, [&](int r, int c, T* sums) {
            Word& to = this->word_at(a, r, c);
#pragma unroll
            for (int e = 0; e < WORD; ++e) to.x[e] = scale(conjugate_if(sums[e], true), Real(-1));
        });
        __syncthreads();
        const int failed = FactorSteps<T>(a, PANEL_TILE).run();
        // Solves take reciprocals, and conjugates.
        if (threadIdx.x < PANEL_TILE) {
            const int row = first(i) + threadIdx.x;
            T& x = a.at(threadIdx.x, threadIdx.x);
            if (row < args_.n) memory_[row_start<int64_t>(row) + row] = x;
            x = divide(one<T>(), x);
        }
        __syncthreads();
        this->write(a, image(i, i), true);
        if (threadIdx.x == 0) {
            int32_t& info = args_.info[b_];
            const int order = failed > 0 ? first(i) + failed : 0;
            if (first(i) == 0 || (order > 0 && info == 0)) info = order;
        }
        __syncthreads();
        this->announce(image(i, i));
        for_tile(i, i, [&](int r, int c, T* place) {
            if (place && c < r) *place = a.at(r, c);
        });
        if (j >= 0) store(i, j);
    }

    // The tile in shared memory becomes that of the factor, and is announced. Its row of tiles contributes to `rest` of
    // its diagonal, if there is one.
    template <bool TO_DIAGONAL>
    __device__ void solve(Sums& rest, int i, int j) {
        for_tile(i, j, [&](int r, int c, T* place) {
            ptx::cp_async<sizeof(T)>(ptx::shared_address(&x_.at(r, c)), place ? place : memory_,
                                     place != nullptr);
        });
        ptx::cp_async_commit();
        Sums sums;
        conjugate(sums);
        const auto images = [&](int row) { return [this, row](int k) { return image(row, k); }; };
        if (j > 0)
            this->add_tiles(sums, j, images(i), images(j), [&](const T* p) {
                if constexpr (TO_DIAGONAL) Base::template add_square<PANEL_TILE / 2>(rest, p);
            });
        ptx::cp_async_wait<0>();
        __syncthreads();
        this->for_words(sums, [&](int r, int c, T* sum) {
            Word& to = this->word_at(x_, r, c);
#pragma unroll
            for (int e = 0; e < WORD; ++e)
                to.x[e] = difference(to.x[e], conjugate_if(sum[e], true));
        });
        this->fetch(image(j, j));
        LineSteps<T, PANEL_TILE, PANEL_PITCH>(this->second(), x_.data).run(PANEL_TILE);
        this->write(x_, image(i, j));
        __syncthreads();
        this->announce(image(i, j));
    }

    __device__ static void conjugate(Sums& sums) {
        if constexpr (is_complex<T>) sums.conj_b = true;
    }

    // What is to be factored, with the opposite sign. Places behind the matrix are those of an identity matrix.
    __device__ void load_diagonal(Sums& rest, int i) {
        conjugate(rest);
        this->for_words(rest, [&](int r0, int c, T* sums) {
#pragma unroll
            for (int e = 0; e < WORD; ++e) {
                const int r = r0 + e, row = first(i) + r;
                T x = r == c ? one<T>() : T{};
                if (c <= r && row < args_.n) x = memory_[row_start<int64_t>(row) + first(i) + c];
                sums[e] = scale(conjugate_if(x, true), Real(-1));
            }
        });
    }

    __device__ void store(int i, int j) {
        for_tile(i, j, [&](int r, int c, T* place) {
            if (place) *place = x_.at(r, c);
        });
    }

    // Calls f(row, column, place or null) for the elements of a tile that this thread loads or stores.
    template <class F>
    __device__ void for_tile(int i, int j, F f) {
        for_rectangle(PANEL_TILE, PANEL_TILE, [&](int r, int c) {
            const int row = first(i) + r;
            f(r, c, row < args_.n ? memory_ + row_start<int64_t>(row) + first(j) + c : nullptr);
        });
    }

    // The first row of tiles (i, j), and the first column of tiles (j, i).
    __device__ int first(int i) const { return args_.begin + i * PANEL_TILE; }
    __device__ Image image(int i, int j) const {
        const int64_t number = b_ * args_.tiles() + args_.before_row(i) + j;
        return {args_.images + number * PANEL_IMAGE, args_.ready + number};
    }

    const Args& args_;
    int b_;
    T* memory_;
};

}  // namespace

bool factor_panel(const Factor& p, Span panel, Scratch& scratch, cudaStream_t stream) {
    bool done = false;
    with_solved_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        using Work = PanelFactor<T>;
        if (!panel_fits<Work>()) return;
        PanelArgs<T> args{};
        args.batch_stride = p.batch_stride;
        args.n = static_cast<int>(p.n);
        args.begin = static_cast<int>(panel.begin);
        args.rows = static_cast<int>(ceil_div(p.n - panel.begin, PANEL_TILE));
        args.cols = static_cast<int>(ceil_div(panel.length(), PANEL_TILE));
        // As many matrices at once as have room for their images.
        const int64_t at_once = std::clamp<int64_t>(
                          PANEL_IMAGES_LIMIT / panel_image_bytes<T>(args.tiles()), 1, p.batch),
                      tiles = at_once * args.tiles();
        if (tiles > INT32_MAX || !reserve_images<T>(args, tiles, scratch)) return;
        for (int64_t b = 0; b < p.batch; b += at_once) {
            args.packed = static_cast<T*>(p.packed) + b * p.batch_stride;
            args.info = p.info + b;
            args.batch = static_cast<int>(std::min(at_once, p.batch - b));
            launch_panel<Work>(args, tiles, stream);
        }
        done = true;
    });
    return done;
}

}  // namespace packedtri::cuda
