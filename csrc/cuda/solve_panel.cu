// Many right-hand sides and a triangle of middle size, by one launch.
#include "leaf.h"
#include "line_solver.cuh"
#include "panel_tiles.cuh"

namespace packedtri::cuda {
namespace {

template <class T>
struct SolvePanelArgs {
    SolveArgs<T> solve;  // Its tiles are strips of lines.
    T* images;           // Of the triangles, and of the solutions.
    int *ticket, *ready;
    int steps, triangles, batch;  // Triangles are as many as the batch has, or one.

    __host__ __device__ int64_t triangle_tiles() const { return row_start<int64_t>(steps); }
    __host__ __device__ int64_t tiles() const {
        return triangles * triangle_tiles() + int64_t{batch} * steps * solve.tiles;
    }
    // Each tile is one.
    __host__ __device__ int64_t items() const { return tiles(); }
};

// Elements and rows of the triangle are numbered in the order in which they are solved for. Items are, step by step,
// the tiles of the triangle's next row, which are brought into the form that products read, and then those of the
// solution, a strip of lines each: from it a block takes what the steps before contribute, as they become ready, and
// solves with the tile on the diagonal.
template <class T>
class PanelSolver : PanelTiles<T> {
    using Base = PanelTiles<T>;
    using Base::WORD;
    using Base::x_;
    using typename Base::Image;
    using typename Base::Sums;
    using typename Base::Word;

  public:
    using Args = SolvePanelArgs<T>;
    using Base::SHARED_BYTES;
    using Base::THREADS;

    __device__ PanelSolver(const Args& args, char* shared, bool& next_is_ready)
        : Base(reinterpret_cast<T*>(shared), next_is_ready), args_(args), solve_(args.solve) {}

    __device__ void run(int item) {
        const int solutions = args_.batch * solve_.tiles;
        int step = 0, images = args_.triangles;
        for (; item >= images + solutions; images += args_.triangles) {
            item -= images + solutions;
            ++step;
        }
        if (item < images) {
            make_image(item % args_.triangles, step, item / args_.triangles);
        } else {
            strip_ = (item - images) % solve_.tiles;
            b_ = (item - images) / solve_.tiles;
            if (is_stored(step)) solve(step);
        }
    }

  private:
    // Tile (i, k) of triangle t, with reciprocals on the diagonal and rows that are multiplied by what these need. Places
    // behind the triangle are those of an identity.
    __device__ void make_image(int t, int i, int k) {
        const int last = solve_.order - 1;
        for_rectangle(PANEL_TILE, PANEL_TILE, [&](int a, int b) {
            const int r = i * PANEL_TILE + (solve_.forward ? a : b),
                      c = k * PANEL_TILE + (solve_.forward ? b : a);
            const bool stored = r <= last && c <= r;
            ptx::cp_async<sizeof(T)>(ptx::shared_address(&x_.at(r % PANEL_TILE, c % PANEL_TILE)),
                                     stored ? element(t, r, c) : solve_.triangle, stored);
        });
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        __syncthreads();
        if (i == k && threadIdx.x < PANEL_TILE) {
            const int r = threadIdx.x;
            T& pivot = x_.at(r, r);
            if (solve_.unit || i * PANEL_TILE + r > last) pivot = one<T>();
            const auto factor = pivot_scale(pivot);
            if (factor != 1) {
                scale_elements(r + 1, factor, [&](int c) -> T& { return x_.at(r, c); });
                has_scaled_rows(x_) = one<T>();
            }
            pivot = divide(one<T>(), pivot);
        }
        __syncthreads();
        this->write(x_, triangle_image(t, i, k));
        __syncthreads();
        this->announce(triangle_image(t, i, k));
    }

    __device__ void solve(int step) {
        for_tile(step, [&](T& to, T* place) {
            ptx::cp_async<sizeof(T)>(ptx::shared_address(&to), place ? place : solve_.x,
                                     place != nullptr);
        });
        ptx::cp_async_commit();
        int first = 0;  // Steps before have zeros in this strip.
        while (!is_stored(first)) ++first;
        const int t = args_.triangles == 1 ? 0 : b_;
        Sums sums;
        if (first < step)
            this->add_tiles(
                sums, step - first, [&](int k) { return image(first + k); },
                [&](int k) { return triangle_image(t, step, first + k); }, [](const T*) {});
        ptx::cp_async_wait<0>();
        __syncthreads();
        this->for_words(sums, [&](int line, int e, T* sum) {
            Word& to = this->word_at(x_, line, e);
#pragma unroll
            for (int w = 0; w < WORD; ++w) to.x[w] = difference(to.x[w], sum[w]);
        });
        this->fetch(triangle_image(t, step, step));
        if (real(has_scaled_rows(this->second())) != 0) scale_lines(t, step);
        LineSteps<T, PANEL_TILE, PANEL_PITCH>(this->second(), x_.data).run(PANEL_TILE);
        if (step + 1 < args_.steps) {
            this->write(x_, image(step));
            __syncthreads();
            this->announce(image(step));
        }
        for_tile(step, [&](const T& from, T* place) {
            if (place) *place = from;
        });
    }

    // Of an image on the diagonal: one above it, which nothing else reads.
    __device__ static T& has_scaled_rows(const SharedTriangle<T>& image) {
        return image.at(0, PANEL_TILE - 1);
    }

    // As the rows of the triangle are.
    __device__ void scale_lines(int t, int step) const {
        const int e = step * PANEL_TILE + threadIdx.x;
        if (threadIdx.x < PANEL_TILE && e < solve_.order) {
            scale_elements(PANEL_TILE, pivot_scale(*element(t, e, e)),
                           [&](int line) -> T& { return x_.at(line, threadIdx.x); });
        }
        __syncthreads();
    }

    // Element (r, c) of triangle t, which is stored.
    __device__ const T* element(int t, int r, int c) const {
        const int last = solve_.order - 1, row = solve_.forward ? r : last - c,
                  col = solve_.forward ? c : last - r;
        return solve_.triangle + (t * solve_.triangle_batch_stride + int64_t{row} * solve_.begin +
                                  row_start<int>(row) + col);
    }

    // Whether the strip has any elements in the step: outside of a packed triangle there are none.
    __device__ bool is_stored(int step) const {
        if (!solve_.x_packed) return true;
        const int first = step * PANEL_TILE, last = min(first + PANEL_TILE, solve_.order) - 1,
                  first_line = solve_.first_line + strip_ * PANEL_TILE,
                  last_line = min(first_line + PANEL_TILE, solve_.last_line) - 1;
        // Of the rectangle, the least column and the greatest row.
        if (solve_.left) return first_line <= actual(solve_.forward ? last : first);
        return actual(solve_.forward ? first : last) <= last_line;
    }

    // The row or column of X that element e of the lines is in.
    __device__ int actual(int e) const {
        return solve_.begin + (solve_.forward ? e : solve_.order - 1 - e);
    }

    // Calls f(where it belongs in shared memory, place or null) for the elements of a tile that this thread has.
    template <class F>
    __device__ void for_tile(int step, F f) {
        T* const memory = solve_.x + b_ * solve_.x_batch_stride;
        for_rectangle(PANEL_TILE, PANEL_TILE, [&](int a, int b) {
            const int e = solve_.left ? a : b, line = solve_.left ? b : a,
                      number = step * PANEL_TILE + e,
                      at = solve_.first_line + strip_ * PANEL_TILE + line,
                      row = solve_.left ? actual(number) : at,
                      col = solve_.left ? at : actual(number);
            const bool stored =
                number < solve_.order && at < solve_.last_line && (!solve_.x_packed || col <= row);
            f(x_.at(line, e),
              stored ? memory + row_offset(row, solve_.x_row_stride, solve_.x_packed) + col
                     : nullptr);
        });
    }

    __device__ Image numbered(int64_t number) const {
        return {args_.images + number * PANEL_IMAGE, args_.ready + number};
    }
    __device__ Image triangle_image(int t, int i, int k) const {
        return numbered(t * args_.triangle_tiles() + row_start<int64_t>(i) + k);
    }
    __device__ Image image(int step) const {
        return numbered(args_.triangles * args_.triangle_tiles() +
                        (int64_t{b_} * args_.steps + step) * solve_.tiles + strip_);
    }

    const Args& args_;
    const SolveArgs<T>& solve_;
    int b_, strip_;
};

}  // namespace

bool solve_panel(const Solve& p, Span block, Span lines, Scratch& scratch, cudaStream_t stream) {
    bool done = false;
    with_solved_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        using Work = PanelSolver<T>;
        if (!panel_fits<Work>()) return;
        SolvePanelArgs<T> args{};
        args.solve = solve_args<T>(p, block);
        args.solve.first_line = static_cast<int>(lines.begin);
        args.solve.last_line = static_cast<int>(lines.end);
        args.solve.tiles = static_cast<int>(ceil_div(lines.length(), PANEL_TILE));
        args.steps = static_cast<int>(ceil_div(block.length(), PANEL_TILE));
        args.batch = static_cast<int>(p.batch);
        args.triangles = p.triangle_batch_stride == 0 ? 1 : args.batch;
        const int64_t tiles = args.tiles();
        if (panel_image_bytes<T>(tiles) > PANEL_IMAGES_LIMIT ||
            !reserve_images<T>(args, tiles, scratch))
            return;
        launch_panel<Work>(args, tiles, stream);
        done = true;
    });
    return done;
}

}  // namespace packedtri::cuda
