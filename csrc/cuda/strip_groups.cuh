// What the warpgroups of the kernel for strips of 16-bit elements (strips_16bit.cuh) do.
#pragma once

#include "strip_steps.cuh"
#include "wgmma_left.cuh"

namespace packedtri::cuda {

template <class T, class Shape>
class StripStepProducer {
  public:
    __device__ StripStepProducer(const StripStepArgs<T>& args, typename Shape::Shared& shared,
                                 const StripStepWalk<T, Shape>& at)
        : args_(args), shared_(shared), at_(at), thread_(threadIdx.x - Shape::CONSUMERS) {}

    // One warp has the vectors, so that the others need not wait where the last ones of a strip are multiplied still.
    __device__ void run() {
        for (; at_.bands > 0; at_.next_step()) {
            shared_.ring.wait_empty(at_.step);
            if (thread_ / 32 == ROW_WARPS) copy_vectors();
            else copy_row();
        }
    }

  private:
    static constexpr unsigned ROW_WARPS = Shape::PRODUCERS / 32 - 1,
                              EACH = (Shape::SIDE + ROW_WARPS - 1) / ROW_WARPS;

    __device__ void copy_vectors() const {
        const uint32_t full = shared_.ring.full(at_.step);
        const bool one = ptx::elect();
        if (one) {
            ptx::mbarrier_expect(full, Shape::BAND_BYTES);
            at_.template copy_vectors<Shape::SIDE>(args_, at_.row(), shared_.bands[at_.stage()],
                                                   full);
        }
        __syncwarp();
        ptx::mbarrier_arrive(full);
        if (!at_.begins) return;
        shared_.strip_ring.wait_empty(at_.strips);
        if (!one) return;
        const uint32_t strip_full = shared_.strip_ring.full(at_.strips);
        ptx::mbarrier_arrive_expect(strip_full, Shape::STRIP_BYTES);
        at_.template copy_vectors<STRIP_WIDTH>(args_, at_.column(0), shared_.strip, strip_full);
    }

    // A warp starts the copies of its lanes one after the other, so each has some.
    __device__ void copy_row() const {
        const uint32_t full = shared_.ring.full(at_.step);
        const auto r = static_cast<int>(thread_ / 32 * EACH + thread_ % 32);
        if (thread_ % 32 < EACH && r < at_.rows()) {
            const typename Shape::Rows rows(shared_.rows[at_.stage()], at_.triangle);
            rows.copy(r, at_.triangle + row_start(at_.row() + r) + at_.column(0),
                      min(STRIP_WIDTH, at_.stored() + r), at_.triangle + row_start(at_.args.n),
                      full);
        }
        ptx::mbarrier_arrive(full);
    }

    const StripStepArgs<T>& args_;
    typename Shape::Shared& shared_;
    StripStepWalk<T, Shape> at_;
    const unsigned thread_;
};

template <class T, class Shape>
class StripStepConsumer {
  protected:
    __device__ StripStepConsumer(const StripStepArgs<T>& args, typename Shape::Shared& shared,
                                 const StripStepWalk<T, Shape>& at)
        : args_(args), shared_(shared), at_(at),
          group_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / Shape::GROUP % 2, 0)) {}

    __device__ typename Shape::Rows rows() const {
        return {shared_.rows[at_.stage()], at_.triangle};
    }
    // acc += a x, or acc = a x, for 16 steps of the sums, from the block of vectors that `x` describes on.
    __device__ __forceinline__ static void multiply(float* acc, const uint32_t (&a)[4], uint64_t x,
                                                    int step, bool add) {
        constexpr int IN_BLOCK = Image::SIDE / 16;
        const int away = step / IN_BLOCK * (Image::BLOCK_BYTES >> 4) +
                         step % IN_BLOCK * (Shape::X_ALONG ? STEP_ALONG : STEP_ACROSS);
        ptx::wgmma<Shape::VECTORS, !Shape::X_ALONG>(acc, a, x + away, add, T{});
    }

    const StripStepArgs<T>& args_;
    typename Shape::Shared& shared_;
    StripStepWalk<T, Shape> at_;
    const int group_;  // Of the team.
};

// What rows make with the vectors at the columns of the strip. The two groups take steps in turn.
template <class T, class Shape>
class StripStepRows : StripStepConsumer<T, Shape> {
    using Base = StripStepConsumer<T, Shape>;
    using Base::args_, Base::at_, Base::group_, Base::shared_;
    using Left = LeftRows<T, STRIP_WIDTH>;

  public:
    __device__ StripStepRows(const StripStepArgs<T>& args, typename Shape::Shared& shared,
                             const StripStepWalk<T, Shape>& at)
        : Base(args, shared, at) {}

    __device__ void run() {
        for (; at_.bands > 0; at_.next_step()) {
            if (at_.begins) shared_.strip_ring.wait_full(at_.strips);
            if (at_.step % 2 == group_) {
                shared_.ring.wait_full(at_.step);
                if (at_.is_below()) add<false>();
                else add<true>();
            }
            if (at_.ends()) ptx::mbarrier_arrive(shared_.strip_ring.empty(at_.strips));
            if (at_.step % 2 == group_) store();
        }
    }

  private:
    // The products of a step, by two times 16 columns. PARTLY: not all of its elements are stored.
    template <bool PARTLY>
    __device__ __forceinline__ void add() {
        constexpr int STEPS = STRIP_WIDTH / 16, AT_ONCE = 2;
        const Left left(Base::rows(), 0, at_.stored());
        const uint64_t x = tile_descriptor(ptx::shared_address(shared_.strip));
        const int steps = PARTLY ? min(STEPS, (at_.stored() + Shape::SIDE + 14) / 16) : STEPS;
        uint32_t a[2][AT_ONCE][4];
#pragma unroll 1
        for (int s = 0; s < steps; s += 2 * AT_ONCE) {
#pragma unroll
            for (int turn = 0; turn < 2; ++turn) {
                const int first = s + turn * AT_ONCE;
#pragma unroll
                for (int y = 0; y < AT_ONCE; ++y)
                    left.template load<PARTLY>(a[turn][y], (first + y) * 16);
                if (turn == 1 && s + 2 * AT_ONCE >= steps) shared_.ring.leave(at_.step);
                ptx::wgmma_fence();
#pragma unroll
                for (int y = 0; y < AT_ONCE; ++y)
                    Base::multiply(acc_, a[turn][y], x, first + y, first + y > 0);
                ptx::wgmma_commit();
                ptx::wgmma_wait<1>();
            }
        }
        ptx::wgmma_wait();
    }

    __device__ void store() const {
        float* const to = args_.by_rows + (at_.first + at_.done) * (STRIP_BAND * Shape::VECTORS);
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (const int r = Left::row_of(h); r < at_.bands * STRIP_BAND)
                ptx::store_sums<Shape::VECTORS>(acc_, h, to + r * Shape::VECTORS);
    }

    float acc_[Shape::VECTORS / 2];
};

// What columns make with the vectors at the rows of a step: each group has half of the columns, as two products of 64.
template <class T, class Shape>
class StripStepColumns : StripStepConsumer<T, Shape> {
    using Base = StripStepConsumer<T, Shape>;
    using Base::args_, Base::at_, Base::group_, Base::shared_;
    using Left = LeftColumns<T, STRIP_WIDTH>;
    static constexpr int SIDE = 64, PRODUCTS = STRIP_WIDTH / 2 / SIDE;

  public:
    __device__ StripStepColumns(const StripStepArgs<T>& args, typename Shape::Shared& shared,
                                const StripStepWalk<T, Shape>& at)
        : Base(args, shared, at), column_(group_ * PRODUCTS * SIDE) {}

    __device__ void run() {
        for (; at_.bands > 0; at_.next_step()) {
            shared_.ring.wait_full(at_.step);
            if (at_.is_below() && at_.rows() == Shape::SIDE) add<false>();
            else add<true>();
            ptx::mbarrier_arrive(shared_.ring.empty(at_.step));
            if (at_.ends()) store();
        }
    }

  private:
    // The products of a step, by 16 rows. The diagonal is added with the rows.
    template <bool PARTLY>
    __device__ __forceinline__ void add() {
        constexpr int STEPS = Shape::SIDE / 16;
        const Left left(Base::rows(), column_, at_.rows(), at_.stored() - 1);
        const uint64_t x = tile_descriptor(ptx::shared_address(shared_.bands[at_.stage()]));
        uint32_t a[2][PRODUCTS][4];
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
#pragma unroll
            for (int p = 0; p < PRODUCTS; ++p)
                left.template load<PARTLY>(a[s % 2][p], s * 16, p * SIDE);
            ptx::wgmma_fence();
#pragma unroll
            for (int p = 0; p < PRODUCTS; ++p)
                Base::multiply(acc_[p], a[s % 2][p], x, s, !at_.begins || s > 0);
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
        }
        ptx::wgmma_wait();
    }

    __device__ void store() const {
        float* const to = args_.column_sums(blockIdx.x, at_.matrix, at_.strip);
#pragma unroll
        for (int p = 0; p < PRODUCTS; ++p)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                ptx::store_sums<Shape::VECTORS>(
                    acc_[p], h, to + (column_ + p * SIDE + Left::column_of(h)) * Shape::VECTORS);
    }

    const int column_;
    float acc_[PRODUCTS][Shape::VECTORS / 2];
};

}  // namespace packedtri::cuda
