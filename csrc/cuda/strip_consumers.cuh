// What the warps of the kernel for strips (strips.cuh) do that multiply. A team of eight adds up what rows of the
// triangle make with the vectors at the columns of a strip, another one what columns make with the vectors at the rows
// of a band. Both read every tile.
#pragma once

#include "strip_shape.cuh"

namespace packedtri::cuda {

template <class T, class Shape>
class StripConsumer {
  protected:
    using Math = typename Shape::Math;
    using Sums = typename Shape::Sums;
    using Tile = typename Shape::Tile;
    using Acc = typename Shape::Acc;

    __device__ StripConsumer(const StripArgs<T>& args, typename Shape::Shared& shared)
        : args_(args), shared_(shared), at_(args), warp_(threadIdx.x / 32 % 8),
          lane_(threadIdx.x % 32) {}

    // Tile `step` of the block, once it is there; and that the warp is done with it.
    __device__ Tile take(int step) {
        shared_.ring.wait_full(step);
        return {shared_.tiles[step % Shape::STAGES], at_.place()};
    }
    __device__ static void clear(Sums& sums) {
#pragma unroll
        for (auto& sum : sums)
#pragma unroll
            for (auto& x : sum) x = 0;
    }
    // Calls f(r, c, x, y) for the sums x and y, of elements r of vectors c and c + 1, that the lane has of 16 elements
    // from the `first` on.
    template <class F>
    __device__ void each_pair(const Sums& sums, int first, F f) const {
#pragma unroll
        for (int v = 0; v < Shape::VECTORS / 8; ++v)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                f(first + lane_ / 4 + 8 * h, 8 * v + lane_ % 4 * 2, sums[v][2 * h],
                  sums[v][2 * h + 1]);
    }

    // What Math::multiply does, over stored elements only. The vectors come from memory as they are, from step k0 on.
    template <bool ALONG>
    __device__ void add_stored(Sums& sums, Tile tile, int k0, const StripBlock& block) const {
        const int g = lane_ / 4, t = lane_ % 4;
#pragma unroll 1
        for (int k = 0; k < STRIP_STEPS; ++k)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                if (!(ALONG ? block.has(g + 8 * h, k) : block.has(k, g + 8 * h))) continue;
                const Acc a =
                    Accumulator<T>::widen(ALONG ? *tile.at(g + 8 * h, k) : *tile.at(k, g + 8 * h));
#pragma unroll
                for (int v = 0; v < Shape::VECTORS / 8; ++v) {
                    // Addresses for all v at once would push sums out of the registers.
                    const int c = ptx::hidden(2 * t);
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        fma_into(sums[v][2 * h + e], a,
                                 Accumulator<T>::widen(at_.element(k0 + k, 8 * v + c + e)));
                }
            }
    }
    // Adds what a block of a tile makes with the vectors from step k on, whose elements are those of steps k0 on in
    // memory. Zeros past the diagonal must not meet `bad` ones.
    template <bool ALONG, class Vectors>
    __device__ void add_block(Sums& sums, Tile from, const Vectors& x, int k, int k0,
                              const StripBlock& block, bool bad) const {
        if (!block.has_any()) return;
        if (block.has_all()) {
            if (!(bad && Math::NEEDS_ORDINARY) &&
                Math::template multiply<ALONG, Shape::CHAINS, false>(sums, from, x, k, block))
                return;
        } else if (!bad &&
                   Math::template multiply<ALONG, Shape::CHAINS, true>(sums, from, x, k, block)) {
            return;
        }
        add_stored<ALONG>(sums, from, k0, block);
    }

    const StripArgs<T>& args_;
    typename Shape::Shared& shared_;
    StripWalk<T, Shape> at_;
    const unsigned warp_, lane_;
};

template <class T, class Shape>
class StripRows : StripConsumer<T, Shape> {
    using Base = StripConsumer<T, Shape>;
    using Base::args_, Base::shared_, Base::at_, Base::warp_, Base::lane_;
    using typename Base::Acc;
    using Sums = typename Base::Sums;
    // Named barriers: of the team, and of each half of it.
    static constexpr int TEAM_BARRIER = 1, HALF_BARRIER = 2;

  public:
    __device__ StripRows(const StripArgs<T>& args, typename Shape::Shared& shared)
        : Base(args, shared), row_(warp_ % 2 * 16), share_(warp_ / 2) {}

    __device__ void run() {
        bool begins = true;
        for (int u = 0, step = 0; u < at_.units; ++u) {
            if (begins) put_strip(u);
            Sums sums = {};
            for (int tile = 0; tile < Shape::TILES; ++tile, ++step) {
                const auto memory = Base::take(step);
                if (at_.exists(tile)) add_tile(sums, memory, tile);
                shared_.ring.leave(step);
            }
            store(sums, u);
            begins = at_.next();
        }
    }

  private:
    // The vectors at the columns of the strip.
    __device__ void put_strip(int u) {
        // Those of the strip before have been multiplied.
        ptx::barrier_sync(TEAM_BARRIER, Shape::TEAM);
        using Share = StripShare<STRIP_WIDTH, Shape::VECTORS, Shape::TEAM>;
        const Share share(args_.x_next == 1, threadIdx.x);
#pragma unroll 4
        for (int o = 0; o < Share::COUNT; ++o) {
            const int k = share.k(o), c = share.c(o);
            T four[4];
            at_.elements(at_.column(0) + k, c, four);
            if (share.has(o) && !shared_.strip.put(k, c, four)) shared_.bad_strip = u;
        }
        began_ = u;
        ptx::barrier_sync(TEAM_BARRIER, Shape::TEAM);
    }

    // 16 rows, and a share of the columns.
    __device__ void add_tile(Sums& sums, typename Base::Tile memory, int tile) const {
        constexpr int EACH = Shape::TILE / Shape::SHARES;
        const bool bad = shared_.bad_strip == began_;
#pragma unroll(Shape::UNROLLED)
        for (int step = 0; step < EACH; step += STRIP_STEPS) {
            const int k = share_ * EACH + step, i0 = at_.row() + row_, j0 = at_.column(tile) + k;
            Base::template add_block<true>(sums, memory.from(row_, k), shared_.strip,
                                           tile * Shape::TILE + k, j0, {i0 - j0, args_.n - i0},
                                           bad);
        }
    }

    // The warps that have the same rows of the band add up their sums.
    __device__ void store(const Sums& sums, int u) const {
        constexpr int THREADS = 32 * Shape::SHARES, VECTORS = Shape::VECTORS;
        const int barrier = HALF_BARRIER + row_ / 16, first = row_ * VECTORS;
        ptx::barrier_sync(barrier, THREADS);  // Those of the band before have been read.
        Base::each_pair(sums, row_, [&](int r, int c, Acc x, Acc y) {
            Acc* to = &shared_.row_sums[share_][r][c];
            to[0] = x, to[1] = y;
        });
        ptx::barrier_sync(barrier, THREADS);
        Acc* out = args_.by_rows + (at_.first + u) * (STRIP_BAND * VECTORS) + first;
        const Acc* from = &shared_.row_sums[0][0][0] + first;
#pragma unroll
        for (unsigned e = share_ * 32 + lane_; e < 16 * VECTORS; e += THREADS) {
            Acc sum = from[e];
#pragma unroll
            for (int s = 1; s < Shape::SHARES; ++s) sum += from[s * STRIP_BAND * VECTORS + e];
            out[e] = sum;
        }
    }

    const int row_, share_;
    int began_ = 0;
};

template <class T, class Shape>
class StripColumns : StripConsumer<T, Shape> {
    using Base = StripConsumer<T, Shape>;
    using Base::args_, Base::shared_, Base::at_, Base::warp_;
    using typename Base::Acc;
    using Sums = typename Base::Sums;
    static_assert(Shape::TILE == STRIP_STEPS * Shape::TEAM / 32,
                  "what the team multiplies at once");

  public:
    __device__ StripColumns(const StripArgs<T>& args, typename Shape::Shared& shared)
        : Base(args, shared), column_(warp_ * STRIP_STEPS) {}

    __device__ void run() {
        Sums sums[Shape::TILES] = {};
        for (int u = 0, step = 0; u < at_.units; ++u) {
            shared_.band_ring.wait_full(u);
#pragma unroll
            for (int tile = 0; tile < Shape::TILES; ++tile, ++step) {
                const auto memory = Base::take(step);
                if (at_.exists(tile)) add_tile(sums[tile], memory, tile, u);
                shared_.ring.leave(step);
            }
            ptx::mbarrier_arrive(shared_.band_ring.empty(u));
            Acc* to = args_.column_sums(blockIdx.x, at_.matrix, at_.strip);
            if (at_.next() || u + 1 == at_.units) store(sums, to);
        }
    }

  private:
    // 16 columns. Of a symmetric matrix the diagonal is added with the rows.
    __device__ void add_tile(Sums& sums, typename Base::Tile memory, int tile, int u) const {
        const bool bad = shared_.bad_bands[u % 2] == u;
#pragma unroll(Shape::UNROLLED)
        for (int k = 0; k < STRIP_BAND; k += STRIP_STEPS) {
            const int i0 = at_.row() + k, j0 = at_.column(tile) + column_;
            Base::template add_block<false>(sums, memory.from(k, column_), shared_.bands[u % 2], k,
                                            i0, {i0 - j0 - (Shape::BOTH ? 1 : 0), args_.n - i0},
                                            bad);
        }
    }

    __device__ void store(Sums (&sums)[Shape::TILES], Acc* to) const {
#pragma unroll
        for (int tile = 0; tile < Shape::TILES; ++tile) {
            Base::each_pair(sums[tile], tile * Shape::TILE + column_,
                            [&](int c, int v, Acc x, Acc y) {
                                to[c * Shape::VECTORS + v] = x, to[c * Shape::VECTORS + v + 1] = y;
                            });
            Base::clear(sums[tile]);
        }
    }

    const int column_;
};

}  // namespace packedtri::cuda
