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
            for (int tile = 0; tile < Shape::TILES; ++tile, ++step) {
                shared_.ring.wait_empty(step);
                copy_rows(step, tile);
            }
            at_.next();
        }
    }

  private:
    __device__ typename Shape::Tile stage(int step) const {
        return {shared_.tiles[step % Shape::STAGES], at_.place()};
    }

    // The words in which the stored elements of the rows lie, from that on in which they begin. A warp starts the copies of
    // its lanes one after the other, so all warps have some.
    __device__ void copy_rows(int step, int tile) const {
        constexpr unsigned EACH = STRIP_BAND / WARPS;
        const unsigned lane = thread_ % 32, r = thread_ / 32 * EACH + lane % EACH;
        const auto to = stage(step);
        const int place = to.place_of(r), length = at_.length(tile, static_cast<int>(r));
        int words = length > 0 && lane < EACH ? (place + length + to.WORD - 1) / to.WORD : 0;
        const T* from =
            at_.triangle + row_start(at_.row() + static_cast<int>(r)) + at_.column(tile) - place;
        // The word in which the matrix ends may reach out of its memory.
        const int64_t past = from + words * to.WORD - (at_.triangle + row_start(args_.n));
        if (past > 0 && words > 0) {
            --words;
            for (int e = max(place, words * to.WORD); e < place + length; ++e)
                to.row(r)[e] = from[e];
            ptx::bulk_fence();
        }
        const uint32_t barrier = shared_.ring.full(step);
        if (words > 0) {
            ptx::mbarrier_expect(barrier, words * 16);
            ptx::bulk_load(ptx::shared_address(to.row(r)), from, words * 16, barrier);
        }
        ptx::mbarrier_arrive(barrier);
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
