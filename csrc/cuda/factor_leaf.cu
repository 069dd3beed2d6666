#include "factor_small.cuh"
#include "leaf.h"

namespace packedtri::cuda {
namespace {

// One block factors one matrix, of at most ROWS rows, by groups of STEP columns: first what the
// columns before contribute to them; then the columns themselves, one thread
// a row, while every warp factors the triangle at their top for itself.
template <class T, int ROWS>
class BlockFactor {
    static constexpr int THREADS = SHARES * ROWS, WARPS = THREADS / 32;
    using Real = typename RealPart<T>::type;

  public:
    __device__ BlockFactor(const FactorArgs<T>& args, T* shared)
        : args_(args), padded_((args.order + STEP - 1) / STEP * STEP),
          a_{shared, SharedTriangle<T>::pitch_of(padded_)},
          memory_(args.packed + blockIdx.x * args.batch_stride) {}

    __device__ void run() {
        load();
        for (int s = 0; s < padded_; s += STEP) {
            if (s > 0) gather(s);
            eliminate(s);
        }
        for_stored([&](int r, int c, T* place) { *place = a_.at(r, c); });
        if (threadIdx.x == 0 && failed_ > 0 && args_.info[blockIdx.x] == 0)
            args_.info[blockIdx.x] = args_.begin + failed_;
    }

    static int64_t shared_bytes(int64_t order) {
        const int64_t padded = ceil_div(order, STEP) * STEP;
        return padded * SharedTriangle<T>::pitch_of(static_cast<int>(padded)) *
               static_cast<int64_t>(sizeof(T));
    }

  private:
    // Everything is on its way at once. Places behind the block are those of an identity matrix.
    __device__ void load() {
        for_stored([&](int r, int c, T* place) {
            ptx::cp_async<sizeof(T)>(ptx::shared_address(&a_.at(r, c)), place);
        });
        ptx::cp_async_commit();
        for (int r = args_.order + threadIdx.x / 32; r < padded_; r += WARPS)
            for (int c = threadIdx.x % 32; c <= r; c += 32) a_.at(r, c) = c == r ? one<T>() : T{};
        ptx::cp_async_wait<0>();
        __syncthreads();
    }

    template <class F>
    __device__ void for_stored(F f) {
        for_rectangle(args_.order, args_.order, [&](int r, int c) {
            if (c <= r) f(r, c, memory_ + (r * args_.begin + row_start<int>(r) + c));
        });
    }

    // Subtracts what the columns before s contribute to columns [s, s + STEP), for PER_THREAD rows a
    // thread; in conjugates, since it is the other row's elements that stand beside each other.
    __device__ void gather(int s) {
        constexpr int PER_THREAD = 2, GROUPS = ROWS / PER_THREAD;
        const int r = s + threadIdx.x % GROUPS, first = s + threadIdx.x / GROUPS * SHARE;
        T sum[PER_THREAD][SHARE];
        const auto place = [&](int l, int c) -> T& {
            return a_.at(min(r + l * GROUPS, padded_ - 1), c);
        };
        const bool active = first < s + STEP && r < padded_;
        if (active) {
#pragma unroll
            for (int l = 0; l < PER_THREAD; ++l)
#pragma unroll
                for (int e = 0; e < SHARE; ++e)
                    sum[l][e] =
                        r + l * GROUPS < padded_ ? conjugate_if(place(l, first + e), true) : T{};
            subtract_columns(sum, a_, first, s,
                             [&](int k, int l) { return conjugate_if(place(l, k), true); });
#pragma unroll
            for (int l = 0; l < PER_THREAD; ++l)
#pragma unroll
                for (int e = 0; e < SHARE; ++e)
                    if (r + l * GROUPS < padded_)
                        place(l, first + e) = conjugate_if(sum[l][e], true);
        }
        __syncthreads();
    }

    // Factors columns [s, s + STEP). Lane x of every warp has row s + x % STEP of the triangle at
    // the top in `top`, beside a row of its own.
    __device__ void eliminate(int s) {
        const int lane = threadIdx.x % 32, r = s + threadIdx.x;
        const bool active = static_cast<int>(threadIdx.x) - lane < padded_ - s;
        T top[STEP], own[STEP];
        if (active) {
#pragma unroll
            for (int c = 0; c < STEP; ++c) {
                top[c] = a_.at(s + lane % STEP, s + c);
                own[c] = r < padded_ ? a_.at(r, s + c) : T{};
            }
        }
        __syncthreads();
        if (active) {
            eliminate_rows(s, top, own);
            if (r < padded_)
#pragma unroll
                for (int c = 0; c < STEP; ++c) a_.at(r, s + c) = own[c];
        }
        __syncthreads();
    }

    __device__ void eliminate_rows(int s, T (&top)[STEP], T (&own)[STEP]) {
#pragma unroll
        for (int c = 0; c < STEP; ++c) {
            const Real pivot = shuffle(real(top[c]), c);
            if (failed_ == 0 && !(pivot > 0)) failed_ = s + c + 1;
            // The other lanes' elements are not scaled yet: they are on their way while the root is
            // taken.
            const Real reciprocal = reciprocal_root(pivot);
            const T top_multiple = scale(scale(top[c], reciprocal), reciprocal);
            own[c] = scale(own[c], reciprocal);
            const T own_multiple = scale(own[c], reciprocal);
#pragma unroll
            for (int k = c + 1; k < STEP; ++k) {
                const T other = conjugate_if(shuffle(top[c], k), true);
                subtract(top[k], top_multiple, other);
                subtract(own[k], own_multiple, other);
            }
            if (threadIdx.x == c) own[c] = scale(one<T>(), root(pivot, reciprocal));
        }
    }

    const FactorArgs<T>& args_;
    const int padded_;
    const SharedTriangle<T> a_;
    T* const memory_;
    int failed_ = 0;  // The order of the first leading minor of the block that is not positive.
};

template <class T, int ROWS>
__global__ void __launch_bounds__(SHARES* ROWS)
    factor_kernel(const __grid_constant__ FactorArgs<T> args) {
    extern __shared__ __align__(16) char shared[];
    start_leaf();
    BlockFactor<T, ROWS>(args, reinterpret_cast<T*>(shared)).run();
}

template <class T, int ROWS>
void launch(const FactorArgs<T>& args, int64_t batch, cudaStream_t stream) {
    launch_leaf(factor_kernel<T, ROWS>, batch, SHARES * ROWS,
                BlockFactor<T, ROWS>::shared_bytes(args.order), args, stream);
}

}  // namespace

void factor_leaf(const Factor& p, Span block, cudaStream_t stream) {
    with_solved_type(p.dtype, [&](auto element) {
        using T = decltype(element);
        const FactorArgs<T> args{static_cast<T*>(p.packed) + offset(block.begin, block.begin),
                                 p.batch_stride,
                                 p.info,
                                 static_cast<int>(block.begin),
                                 static_cast<int>(block.length()),
                                 p.batch};
        if constexpr (!is_complex<T>) {
            if (args.order <= 16)
                return launch_team_leaf<SmallFactor<T, 16>>(args, p.batch, stream);
            if (args.order <= 32)
                return launch_team_leaf<SmallFactor<T, 32>>(args, p.batch, stream);
        }
        if (block.length() > 64) {
            if constexpr (sizeof(T) == sizeof(float)) launch<T, 128>(args, p.batch, stream);
        } else if (block.length() > 32) {
            launch<T, 64>(args, p.batch, stream);
        } else {
            launch<T, 32>(args, p.batch, stream);
        }
    });
}

}  // namespace packedtri::cuda
