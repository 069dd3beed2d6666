// Changes of low rank of a Cholesky factor by the rotations of cpu/update.cpp, which every element
// meets in the same order. Those of a panel of columns come from its diagonal block and the same
// rows of x. The next launch applies them to the rows below; its first block, whose rows are the
// next diagonal block, goes on to make the next rotations. So there is one launch a panel.
#include "kernels.h"
#include "leaf.cuh"

namespace packedtri::cuda {
namespace {

// Columns of a panel, and rows of a block, which is one warp: lane i has row i.
constexpr int PANEL = 32;

template <class T>
struct Rotation {
    typename RealPart<T>::type c;
    T s;
};

template <class T>
struct UpdateArgs {
    T* packed;
    int64_t batch_stride;
    T* x;
    int64_t n, k;
    char* scratch;  // For the rotations of two panels of every matrix.
    int32_t* info;
    bool downdate;
    int64_t begin;  // Of the panel whose rotations are to be made.
    int blocks;     // Of each matrix.
};

// The rotations of a panel, as they lie in scratch memory. While those of one panel are read, those
// of the next are written.
template <class T>
struct Rotations {
    T* phases;           // By columns of L: what turns them so that the diagonal is positive.
    Rotation<T>* turns;  // By columns of x, and of L inside.

    __device__ Rotations(const UpdateArgs<T>& args, int64_t batch, int64_t begin) {
        const int64_t panel = 2 * batch + begin / PANEL % 2;
        phases = reinterpret_cast<T*>(args.scratch + panel * bytes(args.k));
        turns = reinterpret_cast<Rotation<T>*>(phases + PANEL);
    }
    __host__ __device__ static int64_t bytes(int64_t k) {
        return PANEL * static_cast<int64_t>(sizeof(T) + k * sizeof(Rotation<T>));
    }
};

__device__ float magnitude(float x) { return fabsf(x); }
__device__ double magnitude(double x) { return fabs(x); }
template <class R>
__device__ R magnitude(Complex<R> x) {
    return hypot(x.re, x.im);
}

__device__ float over_real(float x, float d) { return x / d; }
__device__ double over_real(double x, double d) { return x / d; }
template <class R>
__device__ Complex<R> over_real(Complex<R> x, R d) {
    return {x.re / d, x.im / d};
}

// Work on PANEL rows of one matrix, with K columns of x at a time.
template <class T, int K>
class PanelUpdate {
    using Real = typename RealPart<T>::type;
    static constexpr int PITCH = PANEL + 1;  // Lanes write to a row of the tile without conflicts.

  public:
    __device__ PanelUpdate(const UpdateArgs<T>& args, char* shared)
        : args_(args), batch_(blockIdx.x / args.blocks), lane_(threadIdx.x),
          turns_(reinterpret_cast<Rotation<T>*>(shared)),
          tile_(reinterpret_cast<T*>(turns_ + K * PANEL)),
          first_(args.begin + static_cast<int64_t>(blockIdx.x % args.blocks) * PANEL),
          rows_(static_cast<int>(min(args.n - first_, int64_t{PANEL}))) {}

    __device__ void run() {
        if (args_.begin > 0) apply();
        if (first_ == args_.begin) make();
    }

    static constexpr int64_t shared_bytes() {
        return PANEL * static_cast<int64_t>(K * sizeof(Rotation<T>) + PITCH * sizeof(T));
    }

  private:
    // Applies the rotations of the panel before.
    __device__ void apply() {
        const int64_t col = args_.begin - PANEL;
        const Rotations<T> done(args_, batch_, col);
        const T phase = done.phases[lane_];
        load(col, [&](T l) { return multiply(l, phase); });
        for (int64_t r0 = 0; r0 < args_.k; r0 += K) {
            const int count = columns(r0);
            T x[K] = {};
            for_x(r0, count, [&](int r, T& place) { x[r] = place; });
            __syncwarp();  // The tile is complete, or the rotations before these are applied.
            for (int r = 0; r < count; ++r)
                turns_[r * PANEL + lane_] = done.turns[(r0 + r) * PANEL + lane_];
            __syncwarp();
#pragma unroll 4
            for (int j = 0; j < PANEL; ++j) {
                T l = at(lane_, j);
#pragma unroll
                for (int r = 0; r < K; ++r)
                    if (r < count) turn(turns_[r * PANEL + j], l, x[r]);
                at(lane_, j) = l;
            }
            for_x(r0, count, [&](int r, T& place) { place = x[r]; });
        }
        __syncwarp();
        store(col);
    }

    // Makes the rotations of the panel that begins with these rows, and turns its diagonal block.
    // Rows of x are used up where their rotations are made.
    __device__ void make() {
        load(first_, [](T l) { return l; });
        __syncwarp();
        const bool below = first_ + PANEL < args_.n;
        turn_phases(below);
        int failed = PANEL;  // The first column whose diagonal element is not positive.
        int64_t r0 = 0;
        do {
            const int count = columns(r0);
            T x[K] = {};
            for_x(r0, count, [&](int r, T& place) { x[r] = place; });
            for (int j = 0; j < rows_; ++j)
                if (!make_column(j, r0, count, x, below)) failed = min(failed, j);
            r0 += K;
        } while (r0 < args_.k);
        __syncwarp();
        store(first_);
        if (lane_ == 0 && failed < PANEL && args_.info[batch_] == 0)
            args_.info[batch_] = static_cast<int32_t>(first_ + failed + 1);
    }

    // Turns columns so that their diagonal elements are real and not negative.
    __device__ void turn_phases(bool below) {
        const T diagonal = at(lane_, lane_);
        const Real size = magnitude(diagonal);
        const T phase = size > 0 ? over_real(conjugate_if(diagonal, true), size) : one<T>();
        if (below) Rotations<T>(args_, batch_, first_).phases[lane_] = phase;
        for (int j = 0; j < rows_; ++j) {
            const T other = shuffle(phase, j);
            if (lane_ > j) at(lane_, j) = multiply(at(lane_, j), other);
        }
        at(lane_, lane_) = from_real<T>(size);
    }

    // Makes the rotations of column j and some of x, and applies them to the rows below, which are
    // those of lanes > j. Every lane computes the rotation for itself. False where the diagonal is
    // not positive.
    __device__ bool make_column(int j, int64_t r0, int count, T (&x)[K], bool below) {
        T l = lane_ >= j ? at(lane_, j) : T{};
        Real diagonal = shuffle(real(l), j);
        bool positive = true;
#pragma unroll
        for (int r = 0; r < K; ++r) {
            if (r >= count) continue;
            const Rotation<T> t = rotation(diagonal, shuffle(x[r], j));
            if (args_.downdate) positive = positive && diagonal > 0;
            if (below && lane_ == 0)
                Rotations<T>(args_, batch_, first_).turns[(r0 + r) * PANEL + j] = t;
            if (lane_ > j) turn(t, l, x[r]);
        }
        if (lane_ == j) l = from_real<T>(diagonal);
        if (lane_ >= j) at(lane_, j) = l;
        // What is zero so far may get an element from the next columns of x.
        const bool last = r0 + count >= args_.k;
        return positive && (!last || diagonal > 0);
    }

    // The rotation that clears x beside a diagonal element, which changes.
    __device__ Rotation<T> rotation(Real& diagonal, T x) const {
        const Real size = magnitude(x), before = diagonal;
        if (args_.downdate) {
            diagonal = sqrt(before - size) * sqrt(before + size);
            return {diagonal / before, over_real(x, before)};
        }
        diagonal = hypot(before, size);
        if (diagonal == 0) return {1, T{}};  // Of two zeros nothing is to be turned.
        return {before / diagonal, over_real(x, diagonal)};
    }

    __device__ void turn(const Rotation<T>& t, T& l, T& x) const {
        const T conj_s = conjugate_if(t.s, true), before = l;
        if (args_.downdate) {
            subtract(l, conj_s, x);
            l = over_real(l, t.c);
        } else {
            l = scale(l, t.c);
            fma_into(l, conj_s, x);
        }
        x = scale(x, t.c);
        subtract(x, t.s, args_.downdate ? l : before);
    }

    __device__ int columns(int64_t r0) const {
        return static_cast<int>(min(args_.k - r0, int64_t{K}));
    }

    // The elements [r0, r0 + count) of this lane's row of x.
    template <class F>
    __device__ void for_x(int64_t r0, int count, F f) const {
        if (lane_ >= rows_) return;
        T* const row = args_.x + (batch_ * args_.n + first_ + lane_) * args_.k + r0;
#pragma unroll
        for (int r = 0; r < K; ++r)
            if (r < count) f(r, row[r]);
    }

    // Lane c has column col + c of all rows here: neighbours in a row are neighbours in memory.
    // Places of elements that are not stored become zeros.
    template <class F>
    __device__ void load(int64_t col, F change) {
        constexpr int AHEAD = 64 / sizeof(T);  // On their way at once.
        for (int i0 = 0; i0 < PANEL; i0 += AHEAD) {
            T l[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a)
                l[a] = stored(i0 + a, col) ? *element(i0 + a, col) : T{};
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) at(i0 + a, lane_) = change(l[a]);
        }
    }

    __device__ void store(int64_t col) const {
        for (int i = 0; i < rows_; ++i)
            if (stored(i, col)) *element(i, col) = at(i, lane_);
    }

    __device__ bool stored(int i, int64_t col) const {
        return i < rows_ && col + lane_ <= first_ + i;
    }
    __device__ T* element(int i, int64_t col) const {
        return args_.packed + batch_ * args_.batch_stride + offset(first_ + i, col + lane_);
    }
    __device__ T& at(int i, int j) const { return tile_[j * PITCH + i]; }

    const UpdateArgs<T>& args_;
    const int64_t batch_;
    const int lane_;
    Rotation<T>* const turns_;
    T* const tile_;
    const int64_t first_;
    const int rows_;
};

template <class T, int K>
__global__ void __launch_bounds__(PANEL) update_kernel(const __grid_constant__ UpdateArgs<T> args) {
    extern __shared__ __align__(16) char shared[];
    start_leaf();
    PanelUpdate<T, K>(args, shared).run();
}

template <class T, int K>
void launch(UpdateArgs<T> args, int64_t batch, cudaStream_t stream) {
    for (; args.begin < args.n; args.begin += PANEL) {
        args.blocks = args.begin == 0 ? 1 : static_cast<int>(ceil_div(args.n - args.begin, PANEL));
        launch_leaf(update_kernel<T, K>, args.blocks * batch, PANEL,
                    PanelUpdate<T, K>::shared_bytes(), args, stream);
    }
}

}  // namespace

void update_factor(const FactorUpdate& p, Scratch* scratch, cudaStream_t stream) {
    check_reach({p.n, p.k, p.batch});
    check(cudaMemsetAsync(p.info, 0, static_cast<size_t>(p.batch) * sizeof(int32_t), stream),
          "cannot clear info");
    with_solved_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        UpdateArgs<T> args{static_cast<T*>(p.packed),
                           p.batch_stride,
                           static_cast<T*>(p.x),
                           p.n,
                           p.k,
                           nullptr,
                           p.info,
                           p.downdate,
                           0,
                           1};
        if (p.n > PANEL)
            args.scratch =
                static_cast<char*>(scratch->reserve(2 * p.batch * Rotations<T>::bytes(p.k)));
        if (p.k == 1) launch<T, 1>(args, p.batch, stream);
        else launch<T, 8>(args, p.batch, stream);
    });
}

}  // namespace packedtri::cuda
