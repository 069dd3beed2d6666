#include "factor_small.cuh"
#include "factor_steps.cuh"
#include "leaf.h"

namespace packedtri::cuda {
namespace {

// One block factors one matrix, of at most ROWS rows.
template <class T, int ROWS>
class BlockFactor {
    static constexpr int WARPS = 4 * ROWS / 32;

  public:
    static constexpr int THREADS = 32 * WARPS;

    __device__ BlockFactor(const FactorArgs<T>& args, T* shared)
        : args_(args), padded_((args.order + STEP - 1) / STEP * STEP),
          a_{shared, SharedTriangle<T>::pitch_of(padded_)},
          memory_(args.packed + blockIdx.x * args.batch_stride) {}

    __device__ void run() {
        load();
        const int failed = FactorSteps<T>(a_, padded_).run();
        for_stored([&](int r, int c, T* place) { *place = a_.at(r, c); });
        if (threadIdx.x == 0 && failed > 0 && args_.info[blockIdx.x] == 0)
            args_.info[blockIdx.x] = args_.begin + failed;
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

    const FactorArgs<T>& args_;
    const int padded_;
    const SharedTriangle<T> a_;
    T* const memory_;
};

template <class T, int ROWS>
__global__ void __launch_bounds__(BlockFactor<T, ROWS>::THREADS)
    factor_kernel(const __grid_constant__ FactorArgs<T> args) {
    extern __shared__ __align__(16) char shared[];
    start_leaf();
    BlockFactor<T, ROWS>(args, reinterpret_cast<T*>(shared)).run();
}

template <class T, int ROWS>
void launch(const FactorArgs<T>& args, int64_t batch, cudaStream_t stream) {
    using Leaf = BlockFactor<T, ROWS>;
    launch_leaf(factor_kernel<T, ROWS>, batch, Leaf::THREADS, Leaf::shared_bytes(args.order), args,
                stream);
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
            // A block of its own for each takes half the time, as long as there are few (measured on an H200).
            const bool few = args.order >= 8 && p.batch <= 4 * current_device().multiprocessors;
            if (args.order <= 16 && !few)
                return launch_team_leaf<SmallFactor<T, 16>>(args, p.batch, stream);
            if (args.order <= 32 && !few)
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
