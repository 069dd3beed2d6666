// Cholesky factors of matrices of at most 32 rows: each lane has a row in registers.
#pragma once

#include "leaf.cuh"
#include "roots.cuh"

namespace packedtri::cuda {

template <class T>
struct FactorArgs {
    T* packed;  // The first element of the block.
    int64_t batch_stride;
    int32_t* info;
    int begin, order;
    int64_t batch;
};

// SIDE lanes share a matrix of at most SIDE rows.
template <class T, int SIDE>
class SmallFactor {
  public:
    using Args = FactorArgs<T>;
    static constexpr int THREADS = 128, TEAMS = THREADS / SIDE;  // In a block.
    static constexpr int SHARED_BYTES =
        TEAMS * (SIDE * (SIDE + 1) / 2) * static_cast<int>(sizeof(T));

    static __device__ void run(const FactorArgs<T>& args, char* memory) {
        const int team = threadIdx.x / SIDE;
        const int64_t number = int64_t{blockIdx.x} * TEAMS + team;
        // A team without a matrix of its own repeats another's and stores nothing.
        const bool busy = number < args.batch;
        const int64_t batch = busy ? number : 0;
        SmallFactor factor(args, batch,
                           reinterpret_cast<T*>(memory) + team * (SIDE * (SIDE + 1) / 2));
        factor.load();
        factor.eliminate();
        if (busy) factor.store(args.info[batch]);
    }

  private:
    __device__ SmallFactor(const FactorArgs<T>& args, int64_t batch, T* shared)
        : args_(args), lane_(threadIdx.x % SIDE), shared_(shared),
          memory_(args.packed + batch * args.batch_stride) {}

    // Rows of a triangle start in different banks of shared memory.
    __device__ T* row(int r) const { return shared_ + row_start<int>(r); }
    __device__ T* place(int r) const { return memory_ + (r * args_.begin + row_start<int>(r)); }

    __device__ void load() {
#pragma unroll 4
        for (int r = 0; r < args_.order; ++r)
            if (lane_ <= r)
                ptx::cp_async<sizeof(T)>(ptx::shared_address(row(r) + lane_), place(r) + lane_);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        __syncwarp();
#pragma unroll
        for (int c = 0; c < SIDE; ++c)
            x_[c] = lane_ < args_.order && c <= lane_ ? row(lane_)[c] : T{};
        __syncwarp();
    }

    // Column after column, each taken from those to its right.
    __device__ void eliminate() {
#pragma unroll
        for (int c = 0; c < SIDE; ++c) {
            if (c >= args_.order) break;
            const T pivot = __shfl_sync(~0u, x_[c], c, SIDE);
            if (failed_ == 0 && !(pivot > 0)) failed_ = c + 1;
            const T reciprocal = reciprocal_root(pivot);
            const T own = x_[c] * reciprocal;
#pragma unroll
            for (int k = c + 1; k < SIDE; ++k) subtract(x_[k], own, __shfl_sync(~0u, own, k, SIDE));
            x_[c] = lane_ == c ? root(pivot, reciprocal) : own;
        }
    }

    __device__ void store(int32_t& info) const {
#pragma unroll
        for (int c = 0; c < SIDE; ++c)
            if (lane_ < args_.order && c <= lane_) row(lane_)[c] = x_[c];
        __syncwarp(SIDE == 32 ? ~0u : 0xffffu << threadIdx.x % 32 / SIDE * SIDE);
#pragma unroll 4
        for (int r = 0; r < args_.order; ++r)
            if (lane_ <= r) place(r)[lane_] = row(r)[lane_];
        if (lane_ == 0 && failed_ > 0 && info == 0) info = args_.begin + failed_;
    }

    const FactorArgs<T>& args_;
    const int lane_;
    T *const shared_, *const memory_;
    T x_[SIDE];
    int failed_ = 0;  // The order of the first leading minor that is not positive.
};

}  // namespace packedtri::cuda
