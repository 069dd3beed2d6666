// What the warpgroups of wide.cuh that multiply do.
#pragma once

#include "wgmma.cuh"
#include "wide.cuh"

namespace packedtri::cuda {

// Brings tiles in line, multiplies, and adds up.
template <class T, int C, bool X_ALONG>
class WideProduct {
    using Tile = WideTile<C>;
    using Barriers = WideBarriers<C>;
    static constexpr int CHUNKS = WIDE_OUT * WIDE_STEPS / 8 / WIDE_MULTIPLIERS,
                         COPIES = Tile::X_STAGES - 1;

  public:
    __device__ WideProduct(const WideArgs<T>& args, char* shared)
        : args_(args), shared_(shared), barriers_(shared),
          rank_(static_cast<int>(blockIdx.x) % args.thin.split),
          group_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0)) {}

    __device__ void run() {
        const WideItems<T> items(args_, C);
        int turn = 0;
#pragma unroll 1
        for (; items.get(turn, item_); ++turn) {
#pragma unroll
            for (int e = 0; e < C / 2; ++e) acc_[e] = 0;
            const WideShare share(args_, item_);
            // Tiles and sums have the same place.
            if (turn > 0) ptx::mbarrier_wait<true>(barriers_.stored(), (turn - 1) % 2);
            tile_ = share.from;
            for (int x = 0; x < COPIES; ++x)
                if (tile_ + x < share.to) copy_vectors(share, x);
            share.for_stages(item_, Tile::TILES, [&](bool by_rows, int tiles, int k) {
                if (by_rows) multiply<true>(share, tiles, k);
                else multiply<false>(share, tiles, k);
            });
            ptx::wgmma_wait();
            sync();
            put_sums();
            meet(barriers_.summed());
            ptx::mbarrier_wait<true>(barriers_.summed(), turn % 2);
            store();
            meet(barriers_.stored());
        }
        // A block's sums must outlive their reading.
        if (turn > 0) ptx::mbarrier_wait<true>(barriers_.stored(), (turn - 1) % 2);
    }

  private:
    __device__ static void sync() { ptx::barrier_sync(1, WIDE_MULTIPLIERS); }

    // Tells all blocks of the cluster that this one has come here.
    __device__ void meet(uint32_t barrier) const {
        sync();
        if (static_cast<int>(threadIdx.x) < args_.thin.split)
            ptx::mbarrier_arrive_cluster(ptx::peer_address(barrier, threadIdx.x));
    }

    __device__ char* t_stage() const {
        return shared_ + Tile::T_AT + tiles_ % Tile::T_STAGES * Tile::T_BYTES;
    }
    __device__ uint32_t x_stage(int tile) const {
        return ptx::shared_address(shared_) + Tile::X_AT + tile % Tile::X_STAGES * Tile::X_BYTES;
    }

    // Starts copying what the vectors have for the tile that is `ahead`, all of it by one thread.
    __device__ __forceinline__ void copy_vectors(const WideShare& share, int ahead) const {
        if (threadIdx.x >= 32 || !ptx::elect()) return;
        const int k = share.step(item_, tile_ + ahead), count = tiles_ + ahead,
                  matrix = args_.one_x ? 0 : static_cast<int>(item_.batch);
        const uint32_t come = barriers_.vectors_come(count);
        ptx::mbarrier_arrive_expect(come, Tile::X_BYTES);
#pragma unroll
        for (int v = 0; v < C; v += Image::SIDE)
            ptx::tensor_load(x_stage(count) + v * WIDE_STEPS * 2, &args_.x, matrix,
                             X_ALONG ? item_.vector + v : k, X_ALONG ? k : item_.vector + v, come);
    }

    // Multiplies the tiles of a stage of rows, which begin at step k. While the tensor cores have one, the next one
    // is brought in line.
    template <bool ROWS>
    __device__ __forceinline__ void multiply(const WideShare& share, int tiles, int k) {
        const Triangle<T> triangle = triangle_of(args_, item_, ROWS);
        const char* const rows = shared_ + stages_ % Tile::RAW_STAGES * Tile::RAW_BYTES;
        ptx::mbarrier_wait(barriers_.rows_come(stages_), Barriers::rows_parity(stages_));
#pragma unroll 1
        for (int x = 0; x < tiles; ++x, ++tile_, ++tiles_) {
            bring_in_line<ROWS>(
                triangle, rows + x * (ROWS ? WIDE_STEPS * 2 : WIDE_STEPS * Tile::COLUMNS_PITCH),
                k + x * WIDE_STEPS);
            if (x + 1 == tiles) ptx::mbarrier_arrive(barriers_.rows_used(stages_));
            ptx::bulk_fence();
            ptx::wgmma_wait();  // So after the barrier the stages before can be filled.
            sync();
            if (tile_ + COPIES < share.to) copy_vectors(share, COPIES);
            ptx::mbarrier_wait(barriers_.vectors_come(tiles_), Barriers::vectors_parity(tiles_));
            multiply_tile<ROWS>();
        }
        ++stages_;
    }

    // Makes an image block for each warpgroup of a tile whose first step is k, with zeros where nothing is stored. A
    // thread has chunks in rows that begin at the same place in their words: 16 rows further down, a row begins a
    // multiple of 8 elements further in memory.
    template <bool ROWS>
    __device__ __forceinline__ void bring_in_line(const Triangle<T>& triangle, const char* rows,
                                                  int k) const {
        constexpr int PER_LINE = (ROWS ? WIDE_STEPS : WIDE_OUT) / 8,
                      APART = WIDE_MULTIPLIERS / PER_LINE,
                      PITCH = ROWS ? Tile::ROWS_PITCH : Tile::COLUMNS_PITCH;
        static_assert(APART % 16 == 0, "");
        const int thread = static_cast<int>(threadIdx.x), chunk = thread % PER_LINE,
                  line = thread / PER_LINE, row0 = ROWS ? item_.first : k,
                  col0 = ROWS ? k : item_.first, row = row0 + line, col = col0 + chunk * 8;
        const int shift = ptx::past_word(triangle.data + row_start(row));
        const bool whole = row0 + (ROWS ? WIDE_OUT : WIDE_STEPS) <= triangle.n &&
                           col0 + (ROWS ? WIDE_STEPS : WIDE_OUT) <= row0 + triangle.reach;
        const char* const from = rows + line * PITCH + chunk * 16;
        char* const to = t_stage() + (ROWS ? Image::chunk_offset(line, chunk)
                                           : chunk / 8 * Image::BLOCK_BYTES +
                                                 Image::chunk_offset(line, chunk % 8));
#pragma unroll
        for (int x = 0; x < CHUNKS; ++x) {
            const auto* words = reinterpret_cast<const uint4*>(from + x * APART * PITCH);
            uint4 word = Chunk{{words[0], words[1]}, shift}.cut();
            if (!whole) {
                const int i = row + x * APART,
                          valid = i < triangle.n ? i + triangle.reach - col : 0;
                word = clipped(word, max(0, min(8, valid)));
            }
            *reinterpret_cast<uint4*>(to + x * APART * Image::ROW_BYTES) = word;
        }
    }

    template <bool ROWS>
    __device__ __forceinline__ void multiply_tile() {
        constexpr int T_STEP = ROWS ? STEP_ALONG : STEP_ACROSS,
                      X_STEP = X_ALONG ? STEP_ALONG : STEP_ACROSS;
        const uint64_t left = tile_descriptor(ptx::shared_address(t_stage()) +
                                              group_ * Image::BLOCK_BYTES),
                       right = tile_descriptor(x_stage(tiles_));
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < WIDE_STEPS / 16; ++step)
            ptx::wgmma<C, !ROWS, !X_ALONG>(acc_, left + step * T_STEP, right + step * X_STEP, true,
                                           T{});
        ptx::wgmma_commit();
    }

    __device__ float* sums() const { return reinterpret_cast<float*>(shared_ + Tile::T_AT); }
    __device__ bool across() const { return args_.thin.y_next == 1; }

    __device__ __forceinline__ void put_sums() const {
        const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
        for (int c = 0; c < C / 8; ++c)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int r = row + 8 * h, vector = 8 * c + lane % 4 * 2;
                const float x = acc_[4 * c + 2 * h], y = acc_[4 * c + 2 * h + 1];
                if (across()) {
                    *reinterpret_cast<float2*>(sums() + r * Tile::ACROSS_PITCH + vector) =
                        make_float2(x, y);
                } else {
                    sums()[vector * Tile::ALONG_PITCH + r] = x;
                    sums()[(vector + 1) * Tile::ALONG_PITCH + r] = y;
                }
            }
        ptx::bulk_fence();  // The copy engine will write there.
    }

    // The zeros past a diagonal, times an infinite or nan element, are nan: such sums are made again.
    __device__ __noinline__ static float of_stored(const WideArgs<T>& args, WideItem item, int i,
                                                   int vector) {
        const ThinArgs<T>& thin = args.thin;
        const T* x = thin.x + item.batch * thin.x_batch_stride + vector * thin.x_next;
        float sum = 0;
        if (args.by_rows) sum += triangle_of(args, item, true).sum(x, thin.x_step, i, true);
        if (args.by_columns) sum += triangle_of(args, item, false).sum(x, thin.x_step, i, false);
        return sum;
    }

    // Adds up the sums of all blocks of the cluster, in the order of their ranks, 4 neighbours at a time, and
    // stores this block's share.
    __device__ __forceinline__ void store() const {
        constexpr int MOST = 8;
        const ThinArgs<T>& thin = args_.thin;
        const int share = WIDE_OUT * C / 4 / thin.split, length = (across() ? C : WIDE_OUT) / 4,
                  pitch = across() ? Tile::ACROSS_PITCH : Tile::ALONG_PITCH;
        T* const y = thin.y + item_.batch * thin.y_batch_stride;
#pragma unroll 1
        for (int e = rank_ * share + static_cast<int>(threadIdx.x); e < (rank_ + 1) * share;
             e += WIDE_MULTIPLIERS) {
            const int line = e / length, at = e % length * 4;
            float4* const mine = reinterpret_cast<float4*>(sums() + line * pitch + at);
            float4 parts[MOST];
#pragma unroll
            for (int p = 0; p < MOST; ++p) {
                parts[p] = {};
                if (p < thin.split) parts[p] = thin.split > 1 ? *ptx::cluster_peer(mine, p) : *mine;
            }
            float sum[4] = {};
#pragma unroll
            for (int p = 0; p < MOST; ++p) {
                const float x[4] = {parts[p].x, parts[p].y, parts[p].z, parts[p].w};
                for (int v = 0; v < 4; ++v) sum[v] += x[v];
            }
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                const int i = item_.first + (across() ? line : at + v),
                          vector = item_.vector + (across() ? at + v : line);
                if (i >= thin.n || vector >= thin.vectors) continue;
                if (!isfinite(sum[v])) sum[v] = of_stored(args_, item_, i, vector);
                y[i * thin.y_step + vector * thin.y_next] = Accumulator<T>::round(sum[v]);
            }
        }
    }

    const WideArgs<T>& args_;
    WideItem item_{};
    char* const shared_;
    const Barriers barriers_;
    const int rank_, group_;
    int tile_ = 0;                // Of the item.
    int stages_ = 0, tiles_ = 0;  // So far.
    float acc_[C / 2];
};

}  // namespace packedtri::cuda
