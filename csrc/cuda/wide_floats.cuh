// What the warps of the kernel for a hundred vectors or so (wide_launch.cuh) do in float32: of the triangle's elements, as of
// the vectors', tensor cores multiply three parts of bfloat16, the six products of parts that matter, 64 steps at a time, the
// small ones first, since they cut off every addition. The vectors are split by a kernel before, the triangle by the warps
// that multiply, on the way from shared memory to registers.
#pragma once

#include "split_vectors.cuh"
#include "wide.cuh"

namespace packedtri::cuda {

// A step has half of a tile of 128 x 128: 64 columns of sums along rows, 64 rows of those down columns.
template <int VECTORS_>
struct WideFloatShape {
    static constexpr int VECTORS = VECTORS_, PARTS = 3, STEP = 64, HALVES = WIDE_SIDE / STEP;
    static_assert(STEP == Image::SIDE);
    static constexpr int GROUP = 128, CONSUMERS = 2 * GROUP, PRODUCERS = 2 * GROUP,
                         THREADS = CONSUMERS + PRODUCERS, COMPILED_THREADS = THREADS;
    static constexpr int PRODUCER_REGISTERS = VECTORS <= 64 ? 72 : 40,
                         CONSUMER_REGISTERS = 256 - PRODUCER_REGISTERS;
    static_assert(PRODUCERS * PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= 65536);
    using Rows = PackedRows<float, STEP>;
    using Columns = PackedRows<float, WIDE_SIDE>;
    static constexpr int X_BLOCKS = split_width(VECTORS) / Image::SIDE,
                         X_BYTES = X_BLOCKS * Image::BLOCK_BYTES,
                         TILE_BYTES = std::max(Rows::bytes(WIDE_SIDE), Columns::bytes(STEP));
    static constexpr int STAGES = 226 * 1024 / (X_BYTES + TILE_BYTES);
    struct Shared {
        alignas(1024) char x[STAGES][X_BYTES];
        char tile[STAGES][TILE_BYTES];
        Ring<STAGES> ring;
    };
    static_assert(sizeof(Shared) <= 227 * 1024, "");
};

template <class Shape>
class WideFloatProducer {
  public:
    __device__ WideFloatProducer(typename Shape::Shared& shared, const WideWalk<float, Shape>& at)
        : shared_(shared), at_(at), thread_(static_cast<int>(threadIdx.x) - Shape::CONSUMERS) {}

    __device__ void run() {
        for (int step = 0; at_.left > 0; at_.next())
            for (int half = 0; half < Shape::HALVES; ++half, ++step) load(step, half * Shape::STEP);
    }

  private:
    // Columns or rows of the tile from the one on that is so far behind the first.
    __device__ __forceinline__ void load(int step, int behind) {
        shared_.ring.wait_empty(step);
        const WideArgs<float>& args = at_.args;
        char* const tile = shared_.tile[step % Shape::STAGES];
        const uint32_t full = shared_.ring.full(step);
        if (thread_ < 32 && ptx::elect()) {
            ptx::mbarrier_expect(full, Shape::X_BYTES);
            const uint32_t to = ptx::shared_address(shared_.x[step % Shape::STAGES]);
            const int matrix = args.one_x ? 0 : static_cast<int>(at_.matrix / args.groups),
                      order = at_.of_rows ? 0 : args.rows, orders = args.rows + args.columns,
                      k = at_.k() + behind, first = at_.vector / Shape::VECTORS * Shape::X_BLOCKS;
#pragma unroll
            for (int block = 0; block < Shape::X_BLOCKS; ++block)
                ptx::tensor_load(to + block * Image::BLOCK_BYTES, &args.placed,
                                 matrix * orders + order, k, (first + block) * Image::SIDE, full);
        }
        if (at_.of_rows)
            at_.copy_rows(typename Shape::Rows(tile, at_.triangle), WIDE_SIDE, Shape::STEP,
                          at_.row(), at_.column() + behind, thread_, full);
        else
            at_.copy_rows(typename Shape::Columns(tile, at_.triangle), Shape::STEP, WIDE_SIDE,
                          at_.row() + behind, at_.column(), thread_, full);
        ptx::mbarrier_arrive(full);
    }

    typename Shape::Shared& shared_;
    WideWalk<float, Shape> at_;
    const int thread_;
};

template <class Shape>
class WideFloatConsumer {
    static constexpr int SIDE = 64, SUMS = Shape::VECTORS / 2, PRODUCTS = Shape::STEP / 16;

  public:
    __device__ WideFloatConsumer(typename Shape::Shared& shared, const WideWalk<float, Shape>& at)
        : shared_(shared), at_(at),
          first_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / Shape::GROUP, 0) * SIDE) {}

    __device__ void run() {
        clear();
        for (int step = 0; at_.left > 0; at_.next()) {
            for (int half = 0; half < Shape::HALVES; ++half, ++step) {
                shared_.ring.wait_full(step);
                char* const tile = shared_.tile[step % Shape::STAGES];
                const int behind = half * Shape::STEP;
                if (at_.of_rows) {
                    const LeftFloatRows left({tile, at_.triangle}, first_, at_.stored() - behind);
                    if (at_.is_whole()) add<false>(left, step);
                    else add<true>(left, step);
                } else {
                    // Of a symmetric matrix the diagonal is added with the rows.
                    const LeftFloatColumns left({tile, at_.triangle}, first_,
                                                at_.args.n - at_.row() - behind,
                                                at_.stored() + behind - at_.args.rows);
                    if (at_.is_whole()) add<false>(left, step);
                    else add<true>(left, step);
                }
            }
            if (!at_.ends()) continue;
            at_.template store<LeftFloatRows, LeftFloatColumns>(acc_, first_);
            clear();
        }
    }

  private:
    __device__ void clear() {
#pragma unroll
        for (float& x : acc_) x = 0;
    }

    // Splits the elements of a step. Those that three parts cannot hold because they are small are multiplied before, of
    // all rows of the warp. What is not finite makes nan of sums, as do sums that are too large then: they are computed
    // from what is stored at last.
    template <bool PARTLY, class Left>
    __device__ __forceinline__ void split(const Left& left) {
        down_ = 1 / SPLIT_UP;
        if (!split<PARTLY>(left, 1.f)) return;
        down_ = 1 / SPLIT_UP / SPLIT_UP;
        split<PARTLY>(left, SPLIT_UP);
    }
    template <bool PARTLY, class Left>
    __device__ __forceinline__ bool split(const Left& left, float up) {
        uint32_t lost = 0;
#pragma unroll
        for (int s = 0; s < PRODUCTS; ++s)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float x[2];
                left.template load<PARTLY>(x, e, s * 16);
                const Bfloat16Parts one(x[0] * up, lost), two(x[1] * up, lost);
#pragma unroll
                for (int p = 0; p < Shape::PARTS; ++p)
                    a_[p][s][e] = __byte_perm(one.bits[p], two.bits[p], 0x7632);
            }
        return __any_sync(~0u, lost != 0);
    }

    template <bool PARTLY, class Left>
    __device__ __forceinline__ void add(const Left& left, int step) {
        split<PARTLY>(left);
        const uint64_t x = tile_descriptor(ptx::shared_address(shared_.x[step % Shape::STAGES]));
        if constexpr (Shape::VECTORS <= 32) {
            // The first and second parts of the vectors at once, and what else there is apart: sums have one width.
            constexpr int BOTH = 2 * Shape::VECTORS;
            float sums[2 * SUMS], rest[SUMS];
            ptx::wgmma_fence();
            multiply<Shape::VECTORS>(rest, 2, x, 0, false);
            multiply<Shape::VECTORS>(rest, 0, x, 2, true);
            multiply<BOTH>(sums, 1, x, 0, false);
            multiply<BOTH>(sums, 0, x, 0, true);
            finish(step);
#pragma unroll
            for (int e = 0; e < SUMS; ++e)
                acc_[e] = fmaf(sums[e] + (sums[SUMS + e] + rest[e]), down_, acc_[e]);
        } else {
            float sums[SUMS];
            ptx::wgmma_fence();
            multiply<Shape::VECTORS>(sums, 2, x, 0, false);
            multiply<Shape::VECTORS>(sums, 1, x, 1, true);
            multiply<Shape::VECTORS>(sums, 0, x, 2, true);
            multiply<Shape::VECTORS>(sums, 1, x, 0, true);
            multiply<Shape::VECTORS>(sums, 0, x, 1, true);
            multiply<Shape::VECTORS>(sums, 0, x, 0, true);
            finish(step);
#pragma unroll
            for (int e = 0; e < SUMS; ++e) acc_[e] = fmaf(sums[e], down_, acc_[e]);
        }
    }
    // A part of the step's elements times N columns of the vectors' parts, from part `of_x` on.
    template <int N>
    __device__ __forceinline__ void multiply(float* sums, int part, uint64_t x, int of_x,
                                             bool add) const {
        const int column = of_x * Shape::VECTORS, block = column / Image::SIDE;
        x += (block * Image::BLOCK_BYTES + column % Image::SIDE * 2) >> 4;
#pragma unroll
        for (int s = 0; s < PRODUCTS; ++s)
            ptx::wgmma<N, true>(sums, a_[part][s], x + s * STEP_ACROSS, add || s > 0,
                                __nv_bfloat16{});
    }
    __device__ __forceinline__ void finish(int step) {
        ptx::wgmma_commit();
        ptx::wgmma_wait();
        ptx::mbarrier_arrive(shared_.ring.empty(step));
    }

    typename Shape::Shared& shared_;
    WideWalk<float, Shape> at_;
    const int first_;  // Row or column of a tile.
    float down_ = 1;
    uint32_t a_[Shape::PARTS][PRODUCTS][4];
    float acc_[SUMS];
};

}  // namespace packedtri::cuda
