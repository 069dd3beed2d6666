// What the warps of the kernel for strips (strips.cuh) do that load.
#pragma once

#include "strip_shape.cuh"

namespace packedtri::cuda {

template <class T, class Shape>
class StripProducer {
    using Share = StripShare<STRIP_BAND, Shape::VECTORS, Shape::PRODUCERS>;
    static constexpr int WARPS = Shape::PRODUCERS / 32;

  public:
    __device__ StripProducer(const StripArgs<T>& args, typename Shape::Shared& shared)
        : args_(args), shared_(shared), thread_(threadIdx.x - Shape::CONSUMERS),
          share_(args.x_next == 1, thread_), at_(args) {}

    __device__ void run() {
        T vectors[Share::COUNT][4];
        StripWalk<T, Shape> coming(args_);  // The unit whose vectors are on their way.
        if constexpr (Shape::COLUMNS) load_band(coming, vectors);
        for (int u = 0, step = 0; u < at_.units; ++u) {
            if constexpr (Shape::COLUMNS) {
                put_band(vectors, u);
                coming.next();
                if (u + 1 < at_.units) load_band(coming, vectors);
            }
            for (int tile = 0; tile < STRIP_TILES; ++tile, ++step) {
                shared_.ring.wait_empty(step);
                if (at_.whole(tile)) copy_rows(step, tile);
                else if (at_.exists(tile)) copy_elements(step, tile);
                ptx::cp_async_arrive(shared_.ring.full(step));
            }
            at_.next();
        }
    }

  private:
    __device__ typename Shape::Tile stage(int step) const {
        return at_.tile(shared_.tiles[step % Shape::STAGES]);
    }

    // The words in which the rows lie: one more than the elements take where these begin inside of a word. A warp
    // starts the copies of its lanes one after the other, so all warps have some.
    __device__ void copy_rows(int step, int tile) const {
        constexpr unsigned EACH = STRIP_BAND / WARPS;
        if (thread_ % 32 >= EACH) return;
        const unsigned r = thread_ / 32 * EACH + thread_ % 32;
        const auto to = stage(step);
        const unsigned place = to.place_of(r);
        const uint32_t bytes = (STRIP_TILE + (place > 0 ? to.WORD : 0)) * sizeof(T),
                       barrier = shared_.ring.full(step);
        ptx::mbarrier_expect(barrier, bytes);
        ptx::bulk_load(
            ptx::shared_address(to.row(r)),
            at_.triangle + row_start(at_.row() + static_cast<int>(r)) + at_.column(tile) - place,
            bytes, barrier);
    }
    // Near the diagonal and the last row: zeros for what is not stored.
    __device__ void copy_elements(int step, int tile) const {
        const auto to = stage(step);
        const int j = at_.column(tile) + static_cast<int>(thread_ % 32);
        for (unsigned r = thread_ / 32; r < STRIP_BAND; r += WARPS) {
            const int i = at_.row() + static_cast<int>(r);
            const T* from = at_.triangle + row_start(i) + j;
            const uint32_t there = ptx::shared_address(to.at(r, thread_ % 32));
#pragma unroll
            for (int c = 0; c < STRIP_TILE; c += 32) {
                const bool stored = i < args_.n && j + c <= i;
                ptx::cp_async<sizeof(T)>(there + c * static_cast<uint32_t>(sizeof(T)),
                                         stored ? from + c : at_.triangle, stored);
            }
        }
    }

    // The vectors at the rows of a band: to registers while the bands before are under way.
    __device__ void load_band(const StripWalk<T, Shape>& at, T (&own)[Share::COUNT][4]) const {
#pragma unroll
        for (int o = 0; o < Share::COUNT; ++o)
            if (share_.has(o)) at.elements(at.row() + share_.k(o), share_.c(o), own[o]);
    }
    __device__ void put_band(const T (&own)[Share::COUNT][4], int u) {
        shared_.band_ring.wait_empty(u);
#pragma unroll
        for (int o = 0; o < Share::COUNT; ++o)
            if (share_.has(o) && !shared_.bands[u % 2].put(share_.k(o), share_.c(o), own[o]))
                shared_.bad_bands[u % 2] = u;
        ptx::mbarrier_arrive(shared_.band_ring.full(u));
    }

    const StripArgs<T>& args_;
    typename Shape::Shared& shared_;
    const unsigned thread_;
    const Share share_;
    StripWalk<T, Shape> at_;
};

}  // namespace packedtri::cuda
