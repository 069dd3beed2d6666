// Four warps have the copy engine bring pieces of rows of the triangle to shared memory, as they lie: in words of
// 16 bytes, in which a row begins anywhere. Two warpgroups bring them in line, as image blocks (image.h), and
// multiply them by blocks of the vectors, which the copy engine brings in that order. The triangle is the left
// operand of the tensor cores whichever side it is on: rows times T are the rows of Tᵀ times columns.
#include "wide.h"

#include <algorithm>

#include "image.h"
#include "launch.h"
#include "tensor_map.h"
#include "thin.cuh"
#include "triangle_16bit.cuh"
#include "wgmma.cuh"

namespace packedtri::cuda {
namespace {

constexpr int MULTIPLIERS = 256, LOADERS = 128, THREADS = MULTIPLIERS + LOADERS;
constexpr int OUT = WIDE_OUT;      // Elements of each vector of the result, a half a warpgroup.
constexpr int STEPS = WIDE_STEPS;  // Of a sum, at once.
static_assert(OUT == 2 * Image::SIDE && STEPS == Image::SIDE, "");

// What a block with C vectors has in shared memory: stages of rows of the triangle as they lie in memory, of a few
// tiles each, so that pieces of rows are long; behind them tiles in line and tiles of vectors, in whose place sums
// are put, and barriers.
template <int C>
struct WideTile {
    static constexpr int TILES = C > 128 ? 2 : 4;  // Of a stage of rows.
    // Pieces of rows of a stage, and a word for what they begin and end in.
    static constexpr int ROWS_PITCH = TILES * STEPS * 2 + 16, COLUMNS_PITCH = OUT * 2 + 16;
    static constexpr int RAW_STAGES = 2,
                         RAW_BYTES = std::max(OUT * ROWS_PITCH, TILES * STEPS * COLUMNS_PITCH);
    static constexpr int T_STAGES = 2, T_BYTES = OUT * STEPS * 2;
    static constexpr int X_STAGES = 3, X_BYTES = C * STEPS * 2;
    static constexpr int T_AT = (RAW_STAGES * RAW_BYTES + 1023) / 1024 * 1024,
                         X_AT = T_AT + T_STAGES * T_BYTES, X_END = X_AT + X_STAGES * X_BYTES;
    // Of sums, whose neighbours are those of the result in memory: rows begin in different banks.
    static constexpr int ACROSS_PITCH = C + 8, ALONG_PITCH = OUT + 4;
    static constexpr int BARRIERS =
        std::max(X_END, T_AT + std::max(OUT * ACROSS_PITCH, C* ALONG_PITCH) * 4);
    static constexpr int SHARED_BYTES = BARRIERS + 8 * (2 * RAW_STAGES + X_STAGES + 2);
    static_assert(SHARED_BYTES <= 227 * 1024, "");
};

template <class T>
struct WideArgs {
    ThinArgs<T> thin;
    CUtensorMap x;
    bool one_x;  // All matrices of a batch are multiplied by the same vectors.
    // Whether the rows of the triangle enter, and its columns; of a symmetric matrix both do, the diagonal
    // with the rows.
    bool by_rows, by_columns;
};

// A part of the result: elements [first, first + OUT) of C vectors from `vector` on.
struct WideItem {
    int vector, first;
    int64_t batch;
};

// Parts that share rows of a triangle are neighbours, and the longest sums come first. Clusters take them in turn,
// there and back, so that who begins with the longest gets shorter ones afterwards.
template <class T>
class WideItems {
  public:
    __device__ WideItems(const WideArgs<T>& args, int vectors_at_once)
        : args_(args), at_once_(vectors_at_once),
          vectors_(static_cast<int>(ceil_div(args.thin.vectors, vectors_at_once))),
          groups_(static_cast<int>(ceil_div(args.thin.n, OUT))),
          cluster_(static_cast<int>(blockIdx.x) / args.thin.split),
          clusters_(static_cast<int>(gridDim.x) / args.thin.split) {}

    // The item of a turn of this block's cluster; false if there is none any more.
    __device__ bool get(int turn, WideItem& item) const {
        const int64_t start = int64_t{turn} * clusters_,
                      index = start + (turn % 2 == 0 ? cluster_ : clusters_ - 1 - cluster_);
        const int64_t of_group = int64_t{vectors_} * args_.thin.batch;
        if (index >= of_group * groups_) return false;
        const int group = static_cast<int>(index / of_group);
        const auto within = static_cast<int>(index % of_group);
        item = {within % vectors_ * at_once_, (args_.by_rows ? groups_ - 1 - group : group) * OUT,
                within / vectors_};
        return true;
    }

  private:
    const WideArgs<T>& args_;
    const int at_once_, vectors_, groups_, cluster_, clusters_;
};

// A block's share of the sum for an item: tiles [from, to), those along rows of the triangle before those down
// its columns, which begin at `first`.
struct WideShare {
    int rows, from, to;

    template <class T>
    __device__ WideShare(const WideArgs<T>& args, const WideItem& item) {
        const ThinArgs<T>& thin = args.thin;
        const int last = min(thin.n, item.first + OUT),  // Sums along rows end here.
            rank = static_cast<int>(blockIdx.x) % thin.split;
        rows = args.by_rows ? static_cast<int>(ceil_div(last, STEPS)) : 0;
        const int columns =
            args.by_columns ? static_cast<int>(ceil_div(thin.n - item.first, STEPS)) : 0;
        from = (rows + columns) * rank / thin.split;
        to = (rows + columns) * (rank + 1) / thin.split;
    }
    // The step at which a tile begins.
    __device__ int step(const WideItem& item, int tile) const {
        return tile < rows ? tile * STEPS : item.first + (tile - rows) * STEPS;
    }
    // Calls f(along rows, tiles, step at which the first one begins) for stages of up to `most` tiles.
    template <class F>
    __device__ __forceinline__ void for_stages(const WideItem& item, int most, F f) const {
        for (int tile = from, count; tile < to; tile += count) {
            const bool by_rows = tile < rows;
            count = min(most, (by_rows ? min(rows, to) : to) - tile);
            f(by_rows, count, step(item, tile));
        }
    }
};

template <class T>
__device__ Triangle<T> triangle_of(const WideArgs<T>& args, const WideItem& item, bool by_rows) {
    const ThinArgs<T>& thin = args.thin;
    return {thin.triangle + item.batch * thin.triangle_batch_stride, thin.n,
            by_rows || !args.by_rows ? 1 : 0};
}

// The barriers of a block, by their addresses.
template <int C>
class WideBarriers {
    using Tile = WideTile<C>;

  public:
    __device__ explicit WideBarriers(char* shared)
        : at_(ptx::shared_address(shared) + Tile::BARRIERS) {}

    __device__ void init(int split) const {
        for (int s = 0; s < Tile::RAW_STAGES; ++s) {
            ptx::mbarrier_init(rows_come(s), LOADERS);
            ptx::mbarrier_init(rows_used(s), MULTIPLIERS);
        }
        for (int s = 0; s < Tile::X_STAGES; ++s) ptx::mbarrier_init(vectors_come(s), 1);
        ptx::mbarrier_init(summed(), split);
        ptx::mbarrier_init(stored(), split);
        ptx::mbarrier_init_fence();
    }
    // Of a stage of rows.
    __device__ uint32_t rows_come(int stage) const { return at_ + stage % Tile::RAW_STAGES * 8; }
    __device__ uint32_t rows_used(int stage) const {
        return rows_come(stage) + Tile::RAW_STAGES * 8;
    }
    __device__ static int rows_parity(int stage) { return stage / Tile::RAW_STAGES % 2; }
    // Of the vectors of a tile.
    __device__ uint32_t vectors_come(int tile) const {
        return at_ + (2 * Tile::RAW_STAGES + tile % Tile::X_STAGES) * 8;
    }
    __device__ static int vectors_parity(int tile) { return tile / Tile::X_STAGES % 2; }
    // All blocks of the cluster have put their sums where others read them; have read them.
    __device__ uint32_t summed() const { return at_ + (2 * Tile::RAW_STAGES + Tile::X_STAGES) * 8; }
    __device__ uint32_t stored() const { return summed() + 8; }

  private:
    const uint32_t at_;
};

// Copies pieces of rows, one row a thread at a time.
template <class T, int C>
class RowLoader {
    using Tile = WideTile<C>;
    using Barriers = WideBarriers<C>;

  public:
    __device__ RowLoader(const WideArgs<T>& args, char* shared)
        : args_(args), shared_(shared), barriers_(shared) {}

    __device__ void run() {
        const WideItems<T> items(args_, C);
        WideItem item;
        for (int turn = 0; items.get(turn, item); ++turn)
            WideShare(args_, item)
                .for_stages(item, Tile::TILES, [&](bool by_rows, int tiles, int k) {
                    if (by_rows) load<true>(item, tiles, k);
                    else load<false>(item, tiles, k);
                });
    }

  private:
    template <bool ROWS>
    __device__ void load(const WideItem& item, int tiles, int k) {
        const Triangle<T> triangle = triangle_of(args_, item, ROWS);
        const int thread = static_cast<int>(threadIdx.x) - MULTIPLIERS;
        char* const stage = shared_ + stages_ % Tile::RAW_STAGES * Tile::RAW_BYTES;
        if (stages_ >= Tile::RAW_STAGES)
            ptx::mbarrier_wait(barriers_.rows_used(stages_), Barriers::rows_parity(stages_) ^ 1);
        const int lines = ROWS ? OUT : tiles * STEPS, length = ROWS ? tiles * STEPS : OUT;
        for (int line = thread; line < lines; line += LOADERS)
            copy(triangle, (ROWS ? item.first : k) + line, ROWS ? k : item.first, length,
                 stage + line * (ROWS ? Tile::ROWS_PITCH : Tile::COLUMNS_PITCH));
        ptx::mbarrier_arrive(barriers_.rows_come(stages_));
        ++stages_;
    }

    // Copies `length` elements of a row from column `col` on, and what else is in their words, as far as memory goes:
    // beyond the triangle's there may be none. Of words at its ends elements are copied by themselves.
    __device__ void copy(const Triangle<T>& triangle, int row, int col, int length,
                         char* to) const {
        if (row >= triangle.n) return;
        constexpr int64_t WORD = 16;
        const auto address = [](const T* p) { return reinterpret_cast<intptr_t>(p); };
        const T* const from = triangle.data + offset(row, col);
        if (from >= triangle.end) return;
        const intptr_t begin = address(triangle.data), end = address(triangle.end),
                       start = address(from) & -WORD,
                       stop = (min(address(from + length), end) + WORD - 1) & -WORD;
        const auto one_by_one = [&](intptr_t first, intptr_t last) {
            for (intptr_t p = first; p < last; p += sizeof(T))
                *reinterpret_cast<T*>(to + (p - start)) = *reinterpret_cast<const T*>(p);
            ptx::bulk_fence();
        };
        intptr_t words = start, words_end = stop;
        if (words < begin) {
            one_by_one(begin, min(words + WORD, end));
            words += WORD;
        }
        if (words_end > end && words_end > words) {
            words_end -= WORD;
            one_by_one(words_end, end);
        }
        if (words_end <= words) return;
        const auto bytes = static_cast<uint32_t>(words_end - words);
        ptx::mbarrier_expect(barriers_.rows_come(stages_), bytes);
        ptx::bulk_load(ptx::shared_address(to + (words - start)),
                       reinterpret_cast<const void*>(words), bytes, barriers_.rows_come(stages_));
    }

    const WideArgs<T>& args_;
    char* const shared_;
    const Barriers barriers_;
    int stages_ = 0;  // So far.
};

// Brings tiles in line, multiplies, and adds up.
template <class T, int C, bool X_ALONG>
class WideProduct {
    using Tile = WideTile<C>;
    using Barriers = WideBarriers<C>;
    static constexpr int CHUNKS = OUT * STEPS / 8 / MULTIPLIERS, COPIES = Tile::X_STAGES - 1;

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
            if (turn > 0) ptx::mbarrier_wait_cluster(barriers_.stored(), (turn - 1) % 2);
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
            ptx::mbarrier_wait_cluster(barriers_.summed(), turn % 2);
            store();
            meet(barriers_.stored());
        }
        // A block's sums must outlive their reading.
        if (turn > 0) ptx::mbarrier_wait_cluster(barriers_.stored(), (turn - 1) % 2);
    }

  private:
    __device__ static void sync() { ptx::barrier_sync(1, MULTIPLIERS); }

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
        if (threadIdx.x != 0) return;
        const int k = share.step(item_, tile_ + ahead), count = tiles_ + ahead,
                  matrix = args_.one_x ? 0 : static_cast<int>(item_.batch);
        const uint32_t come = barriers_.vectors_come(count);
        ptx::mbarrier_arrive_expect(come, Tile::X_BYTES);
#pragma unroll
        for (int v = 0; v < C; v += Image::SIDE)
            ptx::tensor_load(x_stage(count) + v * STEPS * 2, &args_.x, matrix,
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
            bring_in_line<ROWS>(triangle,
                                rows + x * (ROWS ? STEPS * 2 : STEPS * Tile::COLUMNS_PITCH),
                                k + x * STEPS);
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
        constexpr int PER_LINE = (ROWS ? STEPS : OUT) / 8, APART = MULTIPLIERS / PER_LINE,
                      PITCH = ROWS ? Tile::ROWS_PITCH : Tile::COLUMNS_PITCH;
        static_assert(APART % 16 == 0, "");
        const int thread = static_cast<int>(threadIdx.x), chunk = thread % PER_LINE,
                  line = thread / PER_LINE, row0 = ROWS ? item_.first : k,
                  col0 = ROWS ? k : item_.first, row = row0 + line, col = col0 + chunk * 8;
        const int shift = ptx::past_word(triangle.data + row_start(row));
        const bool whole = row0 + (ROWS ? OUT : STEPS) <= triangle.n &&
                           col0 + (ROWS ? STEPS : OUT) <= row0 + triangle.reach;
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
        for (int step = 0; step < STEPS / 16; ++step)
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
        const int share = OUT * C / 4 / thin.split, length = (across() ? C : OUT) / 4,
                  pitch = across() ? Tile::ACROSS_PITCH : Tile::ALONG_PITCH;
        T* const y = thin.y + item_.batch * thin.y_batch_stride;
#pragma unroll 1
        for (int e = rank_ * share + static_cast<int>(threadIdx.x); e < (rank_ + 1) * share;
             e += MULTIPLIERS) {
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

template <class T, int C, bool X_ALONG>
__global__ void __launch_bounds__(THREADS, 1)
    wide_kernel(const __grid_constant__ WideArgs<T> args) {
    extern __shared__ __align__(1024) char shared[];
    if (threadIdx.x == 0) WideBarriers<C>(shared).init(args.thin.split);
    if (args.thin.split > 1) ptx::cluster_sync();
    else __syncthreads();
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    if (threadIdx.x >= MULTIPLIERS) {
        ptx::keep_registers<64>();
        RowLoader<T, C>(args, shared).run();
    } else {
        ptx::take_registers<216>();
        WideProduct<T, C, X_ALONG>(args, shared).run();
    }
}

template <class T, int C>
void launch(const WideArgs<T>& args, bool x_along, cudaStream_t stream) {
    using Tile = WideTile<C>;
    const ThinArgs<T>& thin = args.thin;
    const auto kernel = x_along ? wide_kernel<T, C, true> : wide_kernel<T, C, false>;
    reserve_shared(kernel, Tile::SHARED_BYTES);
    cudaLaunchConfig_t config{};
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = Tile::SHARED_BYTES;
    LaunchAttributes<1> attributes;
    if (thin.split > 1) attributes.cluster(thin.split);
    attributes.give(config);
    const int64_t items = ceil_div(thin.n, OUT) * ceil_div(thin.vectors, C) * thin.batch,
                  clusters = std::min<int64_t>(items, clusters_at_once(kernel, config, thin.split));
    launch_overlapping(kernel, dim3(static_cast<unsigned>(clusters * thin.split)), THREADS, args,
                       stream, "cannot launch a product", thin.split, Tile::SHARED_BYTES);
}

template <class T>
void run(const Product& p, const Config& config, cudaStream_t stream) {
    const bool left = p.a.kind != Kind::Dense, symmetric = has_symmetric(p);
    const Operand& x = left ? p.b : p.a;
    WideArgs<T> args{thin_args<T>(p), map_of(x, p.dtype, p.batch), x.batch_stride == 0,
                     symmetric || sums_along_rows(p), symmetric || !sums_along_rows(p)};
    args.thin.split = config.split;
    const bool x_along = runs_along_rows(x) != left;
    switch (wide_vectors(args.thin.vectors, config.tile)) {
        case 64: return launch<T, 64>(args, x_along, stream);
        case 128: return launch<T, 128>(args, x_along, stream);
        default: return launch<T, 256>(args, x_along, stream);
    }
}

}  // namespace

void mm_wide(const Product& p, const Config& config, cudaStream_t stream) {
    if (p.dtype == DType::f16) run<__half>(p, config, stream);
    else run<__nv_bfloat16>(p, config, stream);
}

}  // namespace packedtri::cuda
