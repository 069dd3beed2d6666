// What the warpgroups of the kernel for a hundred vectors or so (wide.cu) do.
#pragma once

#include "wide.cuh"

namespace packedtri::cuda {

template <class T, class Shape>
class WideProducer {
  public:
    __device__ WideProducer(typename Shape::Shared& shared, const WideWalk<T, Shape>& at)
        : shared_(shared), at_(at), thread_(static_cast<int>(threadIdx.x) - Shape::CONSUMERS) {}

    __device__ void run() {
        const WideArgs<T>& args = at_.args;
        for (; at_.left > 0; at_.next()) {
            shared_.ring.wait_empty(at_.step);
            const int stage = at_.step % Shape::STAGES, row = at_.row(), column = at_.column();
            const uint32_t full = shared_.ring.full(at_.step);
            if (thread_ < 32 && ptx::elect()) {
                ptx::mbarrier_expect(full, Shape::X_BYTES);
                const int matrix = args.one_x ? 0 : static_cast<int>(at_.matrix / args.groups);
#pragma unroll
                for (int block = 0; block < Shape::X_BYTES / Image::BLOCK_BYTES; ++block) {
                    const int k = (at_.of_rows ? column : row) +
                                  block / Shape::X_BLOCKS * Image::SIDE,
                              vector = at_.vector + block % Shape::X_BLOCKS * Image::SIDE;
                    ptx::tensor_load(
                        ptx::shared_address(shared_.x[stage]) + block * Image::BLOCK_BYTES,
                        &args.placed, matrix, Shape::X_ALONG ? vector : k,
                        Shape::X_ALONG ? k : vector, full);
                }
            }
            at_.copy_rows(typename Shape::Rows(shared_.rows[stage], at_.triangle), WIDE_SIDE,
                          WIDE_SIDE, row, column, thread_, full);
            ptx::mbarrier_arrive(full);
        }
    }

  private:
    typename Shape::Shared& shared_;
    WideWalk<T, Shape> at_;
    const int thread_;
};

template <class T, class Shape>
class WideConsumer {
    static constexpr int SIDE = 64, STEPS = WIDE_SIDE / 16;
    using Rows = LeftRows<T, WIDE_SIDE>;
    using Columns = LeftColumns<T, WIDE_SIDE>;

  public:
    __device__ WideConsumer(typename Shape::Shared& shared, const WideWalk<T, Shape>& at)
        : shared_(shared), at_(at),
          first_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / Shape::GROUP, 0) * SIDE) {}

    __device__ void run() {
        for (; at_.left > 0; at_.next()) {
            shared_.ring.wait_full(at_.step);
            const typename Shape::Rows rows(shared_.rows[at_.step % Shape::STAGES], at_.triangle);
            if (at_.of_rows) {
                const Rows left(rows, first_, at_.stored());
                if (at_.is_whole()) add<false>(left);
                else add<true>(left);
            } else {
                // Of a symmetric matrix the diagonal is added with the rows.
                const Columns left(rows, first_, at_.args.n - at_.row(),
                                   at_.stored() - at_.args.rows);
                if (at_.is_whole()) add<false>(left);
                else add<true>(left);
            }
            if (at_.ends()) at_.template store<Rows, Columns>(acc_, first_);
        }
    }

  private:
    // The products of a tile, two at a time.
    template <bool PARTLY, class Left>
    __device__ __forceinline__ void add(const Left& left) {
        constexpr int AT_ONCE = 2;
        const uint64_t x =
            tile_descriptor(ptx::shared_address(shared_.x[at_.step % Shape::STAGES]));
#pragma unroll
        for (int s = 0; s < STEPS; s += AT_ONCE) {
            auto& a = a_[s / AT_ONCE % 2];
#pragma unroll
            for (int y = 0; y < AT_ONCE; ++y) left.template load<PARTLY>(a[y], (s + y) * 16);
            ptx::wgmma_fence();
#pragma unroll
            for (int y = 0; y < AT_ONCE; ++y) {
                constexpr int IN_BLOCK = Image::SIDE / 16;
                const int k = s + y,
                          away = k / IN_BLOCK * Shape::X_BLOCKS * (Image::BLOCK_BYTES >> 4) +
                                 k % IN_BLOCK * (Shape::X_ALONG ? STEP_ALONG : STEP_ACROSS);
                ptx::wgmma<Shape::VECTORS, !Shape::X_ALONG>(acc_, a[y], x + away,
                                                            !at_.begins || k > 0, T{});
            }
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
        }
        ptx::wgmma_wait();
        ptx::mbarrier_arrive(shared_.ring.empty(at_.step));
    }

    typename Shape::Shared& shared_;
    WideWalk<T, Shape> at_;
    const int first_;  // Row or column of a tile.
    uint32_t a_[2][2][4];
    float acc_[Shape::VECTORS / 2];
};

}  // namespace packedtri::cuda
