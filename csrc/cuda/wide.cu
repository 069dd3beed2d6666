// Rows of the triangle go through registers, where their elements are brought in line, to image blocks in
// shared memory (image.h); blocks of the vectors are copied there by the copy engine. The triangle is the
// left operand of the tensor cores whichever side it is on: rows times T are the rows of Tᵀ times columns.
#include "wide.h"

#include <algorithm>

#include "image.h"
#include "tensor_map.h"
#include "thin.cuh"
#include "triangle_16bit.cuh"
#include "wgmma.cuh"

namespace packedtri::cuda {
namespace {

constexpr int THREADS = THIN_THREADS;
constexpr int OUT = 64;     // Elements of each vector of the result that a block computes.
constexpr int STEPS = 128;  // Of a sum, at once.
constexpr int BLOCKS = STEPS / Image::SIDE, AHEAD = 2;

template <class T>
struct WideArgs {
    ThinArgs<T> thin;
    CUtensorMap x;
    bool one_x;  // All matrices of a batch are multiplied by the same vectors.
    // Whether the rows of the triangle enter, and its columns; of a symmetric matrix both do, the diagonal
    // with the rows.
    bool by_rows, by_columns;
};

// C vectors: a half of them a warpgroup.
template <int C>
struct WideTile {
    static constexpr int COLS = C / 2, T_BYTES = OUT * STEPS * 2, X_BYTES = C * STEPS * 2,
                         STAGES = 2, STAGE = T_BYTES + X_BYTES;
    // Sums are put where the stages were. Rows begin in different banks.
    static constexpr int PITCH = C + 8;
    static constexpr int SHARED_BYTES = STAGES * STAGE + STAGES * 8;
    static constexpr int BLOCKS_PER_SM = C > 128 ? 1 : 2;
    static_assert(OUT * PITCH * 4 <= STAGES * STAGE, "");
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
        const int64_t of_group = vectors_ * args_.thin.batch;
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

// What a thread loads of a tile of the triangle: chunks of 8 neighbours, of OUT rows of STEPS elements where sums
// run along rows, of STEPS rows of OUT elements otherwise.
template <class T, bool ROWS>
class TriangleLoader {
    static constexpr int CHUNKS = OUT * STEPS / 8 / THREADS, PER_LINE = (ROWS ? STEPS : OUT) / 8;

  public:
    struct Words {
        Chunk of[CHUNKS];
    };

    __device__ TriangleLoader(const Triangle<T>& triangle, int first)
        : triangle_(triangle), first_(first) {}

    __device__ __forceinline__ void load(Words& w, int k) const {
        if (at_edge(k)) return;
#pragma unroll
        for (int x = 0; x < CHUNKS; ++x)
            w.of[x].load(triangle_.data + offset(row(x, k), col(k)), valid(x, k));
    }

    // Has the L2 cache fetch the lines of a tile that will be loaded later.
    __device__ __forceinline__ void prefetch(int k) const {
        constexpr int LINES = ROWS ? 3 : 2, LINE = 64;
#pragma unroll
        for (int e = threadIdx.x; e < (ROWS ? OUT : STEPS) * LINES; e += THREADS) {
            const int row = (ROWS ? first_ : k) + e / LINES,
                      col = (ROWS ? k : first_) + e % LINES * LINE;
            if (row < triangle_.n && col <= row)
                ptx::prefetch_l2(triangle_.data + offset(row, col));
        }
    }

    // As image blocks one after another along the sum, with zeros where nothing is stored.
    __device__ __forceinline__ void store(const Words& w, char* to, int k) const {
        const bool edge = at_edge(k), clips = !full(k);
#pragma unroll
        for (int x = 0; x < CHUNKS; ++x) {
            const int block = ROWS ? chunk() / 8 : line(x) / Image::SIDE;
            uint4 word = edge ? triangle_.stored(row(x, k), col(k)) : w.of[x].cut();
            if (clips) word = clipped(word, valid(x, k));
            *reinterpret_cast<uint4*>(to + block * Image::BLOCK_BYTES +
                                      Image::chunk_offset(line(x) % Image::SIDE, chunk() % 8)) =
                word;
        }
    }

  private:
    __device__ static int chunk() { return static_cast<int>(threadIdx.x) % PER_LINE; }
    __device__ static int line(int x) {
        return static_cast<int>(threadIdx.x) / PER_LINE + x * (THREADS / PER_LINE);
    }
    __device__ int row(int x, int k) const { return (ROWS ? first_ : k) + line(x); }
    __device__ int col(int k) const { return (ROWS ? k : first_) + chunk() * 8; }

    // How many of a chunk's places are stored.
    __device__ int valid(int x, int k) const {
        const int i = row(x, k);
        return i < triangle_.n ? max(0, min(8, i + triangle_.reach - col(k))) : 0;
    }
    // Whether all places of a tile are.
    __device__ bool full(int k) const {
        const int row = ROWS ? first_ : k, col = ROWS ? k : first_;
        return row + (ROWS ? OUT : STEPS) <= triangle_.n &&
               col + (ROWS ? STEPS : OUT) <= row + triangle_.reach;
    }
    // Whether a word that holds elements of a tile may reach out of the memory of the triangle.
    __device__ bool at_edge(int k) const {
        const int row = ROWS ? first_ : k, col = ROWS ? k : first_;
        return row == 0 || (row + (ROWS ? OUT : STEPS) >= triangle_.n &&
                            col + (ROWS ? STEPS : OUT) + 8 > triangle_.n);
    }

    const Triangle<T> triangle_;
    const int first_;
};

template <class T, int C, bool X_ALONG>
class WideProduct {
    using Tile = WideTile<C>;

  public:
    __device__ WideProduct(const WideArgs<T>& args, char* shared)
        : args_(args), shared_(shared), rank_(static_cast<int>(blockIdx.x) % args.thin.split),
          group_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0)) {
        if (threadIdx.x == 0) {
            for (int s = 0; s < Tile::STAGES; ++s) ptx::mbarrier_init(arrived(s), 1);
            ptx::mbarrier_init_fence();
        }
        __syncthreads();
    }

    __device__ void run() {
        const WideItems<T> items(args_, C);
        bool more = items.get(0, item_);
#pragma unroll 1
        for (int turn = 1; more; ++turn) {
#pragma unroll
            for (int e = 0; e < Tile::COLS / 2; ++e) acc_[e] = 0;
            const Share share(*this, item_);
            multiply<true>(share.from, min(share.to, share.rows), 0, 1);
            multiply<false>(max(share.from, share.rows) - share.rows, share.to - share.rows,
                            item_.first, args_.by_rows ? 0 : 1);
            put_sums();
            WideItem next{};
            more = items.get(turn, next);
            if (more) prefetch(next);
            store();
            item_ = next;
        }
    }

  private:
    __device__ Triangle<T> triangle(const WideItem& item, int reach) const {
        const ThinArgs<T>& thin = args_.thin;
        return {thin.triangle + item.batch * thin.triangle_batch_stride, thin.n, reach};
    }
    __device__ char* stage(int s) const { return shared_ + s * Tile::STAGE; }
    __device__ uint32_t arrived(int s) const {
        return ptx::shared_address(shared_ + Tile::STAGES * Tile::STAGE) + 8 * s;
    }

    // Starts copying what the vectors have at steps k and following, all of it by one thread.
    __device__ void copy_vectors(int s, int k) const {
        if (threadIdx.x != 0) return;
        const int matrix = args_.one_x ? 0 : static_cast<int>(item_.batch);
        uint32_t to = ptx::shared_address(stage(s)) + Tile::T_BYTES;
        ptx::mbarrier_arrive_expect(arrived(s), Tile::X_BYTES);
        for (int step = k; step < k + STEPS; step += Image::SIDE)
            for (int v = item_.vector; v < item_.vector + C; v += Image::SIDE) {
                ptx::tensor_load(to, &args_.x, matrix, X_ALONG ? v : step, X_ALONG ? step : v,
                                 arrived(s));
                to += Image::BLOCK_BYTES;
            }
    }

    // What this block has of the tiles of a sum: those along rows of the triangle come first.
    struct Share {
        int rows, from, to;

        __device__ Share(const WideProduct& p, const WideItem& item) {
            const ThinArgs<T>& thin = p.args_.thin;
            const int last = min(thin.n, item.first + OUT);  // Sums along rows end here.
            rows = p.args_.by_rows ? static_cast<int>(ceil_div(last, STEPS)) : 0;
            const int all =
                rows +
                (p.args_.by_columns ? static_cast<int>(ceil_div(thin.n - item.first, STEPS)) : 0);
            from = all * p.rank_ / thin.split;
            to = all * (p.rank_ + 1) / thin.split;
        }
    };

    // Has the L2 cache fetch the first tiles of an item.
    __device__ void prefetch(const WideItem& item) const {
        const Share share(*this, item);
        const Triangle<T> t = triangle(item, 1);
        for (int tile = share.from; tile < min(share.to, share.from + AHEAD); ++tile)
            if (tile < share.rows) TriangleLoader<T, true>(t, item.first).prefetch(tile * STEPS);
            else
                TriangleLoader<T, false>(t, item.first)
                    .prefetch(item.first + (tile - share.rows) * STEPS);
    }

    // Adds tiles [from, to) of a half of the sum, of which tile 0 begins at step k0. The next tile is loaded
    // while the tensor cores multiply, and those behind it are on their way to the L2 cache.
    template <bool ROWS>
    __device__ __forceinline__ void multiply(int from, int to, int k0, int reach) {
        if (from >= to) return;
        const TriangleLoader<T, ROWS> loader(triangle(item_, reach), item_.first);
        const auto k = [&](int tile) { return k0 + tile * STEPS; };
        typename TriangleLoader<T, ROWS>::Words words = {};
        copy_vectors(count_ % Tile::STAGES, k(from));
        loader.load(words, k(from));
        for (int x = 1; x <= AHEAD; ++x)
            if (from + x < to) loader.prefetch(k(from + x));
#pragma unroll 1
        for (int tile = from; tile < to; ++tile, ++count_) {
            const int s = count_ % Tile::STAGES;
            loader.store(words, stage(s), k(tile));
            ptx::bulk_fence();
            ptx::wgmma_wait();  // So after the barrier the other stage can be filled.
            __syncthreads();
            if (tile + 1 < to) {
                copy_vectors((count_ + 1) % Tile::STAGES, k(tile + 1));
                loader.load(words, k(tile + 1));
            }
            if (tile + 1 + AHEAD < to) loader.prefetch(k(tile + 1 + AHEAD));
            ptx::mbarrier_wait(arrived(s), count_ / Tile::STAGES % 2);
            multiply_stage<ROWS>(ptx::shared_address(stage(s)));
        }
        ptx::wgmma_wait();
        __syncthreads();  // What comes next begins with any stage, or needs none.
    }

    template <bool ROWS>
    __device__ __forceinline__ void multiply_stage(uint32_t at) {
        constexpr int T_STEP = ROWS ? STEP_ALONG : STEP_ACROSS,
                      X_STEP = X_ALONG ? STEP_ALONG : STEP_ACROSS, X_BLOCKS = C / Image::SIDE;
        const int column = group_ * Tile::COLS;
        const uint32_t x = at + Tile::T_BYTES + column / Image::SIDE * Image::BLOCK_BYTES +
                           column % Image::SIDE * (X_ALONG ? Image::ROW_BYTES : 2);
        ptx::wgmma_fence();
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
            const uint64_t left = tile_descriptor(at + b * Image::BLOCK_BYTES),
                           right = tile_descriptor(x + b * X_BLOCKS * Image::BLOCK_BYTES);
#pragma unroll
            for (int step = 0; step < Image::SIDE / 16; ++step)
                ptx::wgmma<Tile::COLS, !ROWS, !X_ALONG>(acc_, left + step * T_STEP,
                                                        right + step * X_STEP, true, T{});
        }
        ptx::wgmma_commit();
    }

    __device__ float* sums() const { return reinterpret_cast<float*>(shared_); }

    __device__ __forceinline__ void put_sums() const {
        const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
        for (int c = 0; c < Tile::COLS / 8; ++c)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                *reinterpret_cast<float2*>(sums() + (row + 8 * h) * Tile::PITCH +
                                           group_ * Tile::COLS + 8 * c + lane % 4 * 2) =
                    make_float2(acc_[4 * c + 2 * h], acc_[4 * c + 2 * h + 1]);
        if (args_.thin.split > 1) ptx::cluster_sync();
        else __syncthreads();
    }

    // The zeros past a diagonal, times an infinite or nan element, are nan: such sums are made again.
    __device__ __noinline__ float of_stored(int i, int vector) const {
        const ThinArgs<T>& thin = args_.thin;
        const T* x = thin.x + item_.batch * thin.x_batch_stride + vector * thin.x_next;
        float sum = 0;
        if (args_.by_rows) sum += triangle(item_, 1).sum(x, thin.x_step, i, true);
        if (args_.by_columns)
            sum += triangle(item_, args_.by_rows ? 0 : 1).sum(x, thin.x_step, i, false);
        return sum;
    }

    // Adds up the sums of all blocks of the cluster, in the order of their ranks, 4 neighbours at a time, and
    // stores this block's share.
    __device__ __forceinline__ void store() const {
        constexpr int MOST = 8;
        const ThinArgs<T>& thin = args_.thin;
        const bool across = thin.y_next == 1;
        const int share = OUT * C / 4 / thin.split;
        T* const y = thin.y + item_.batch * thin.y_batch_stride;
#pragma unroll 1
        for (int e = rank_ * share + threadIdx.x; e < (rank_ + 1) * share; e += THREADS) {
            const int r = across ? e / (C / 4) : e % OUT, c = (across ? e % (C / 4) : e / OUT) * 4;
            float4* const mine = reinterpret_cast<float4*>(sums() + r * Tile::PITCH + c);
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
            const int i = item_.first + r;
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                const int vector = item_.vector + c + v;
                if (i >= thin.n || vector >= thin.vectors) continue;
                if (!isfinite(sum[v])) sum[v] = of_stored(i, vector);
                y[i * thin.y_step + vector * thin.y_next] = Accumulator<T>::round(sum[v]);
            }
        }
        // A block's sums must outlive their reading.
        if (thin.split > 1) ptx::cluster_sync();
        else __syncthreads();
    }

    const WideArgs<T>& args_;
    WideItem item_;
    char* const shared_;
    const int rank_, group_;
    int count_ = 0;  // Tiles so far.
    float acc_[Tile::COLS / 2];
};

template <class T, int C, bool X_ALONG>
__global__ void __launch_bounds__(THREADS, WideTile<C>::BLOCKS_PER_SM)
    wide_kernel(const __grid_constant__ WideArgs<T> args) {
    extern __shared__ __align__(1024) char shared[];
    WideProduct<T, C, X_ALONG> product(args, shared);
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    product.run();
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
                  clusters = std::min<int64_t>(
                      items, clusters_at_once(kernel, config, thin.split, Tile::BLOCKS_PER_SM));
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
    if (args.thin.vectors <= 64) launch<T, 64>(args, x_along, stream);
    else if (args.thin.vectors <= 128 || config.tile == TileSize::Small)
        launch<T, 128>(args, x_along, stream);
    else launch<T, 256>(args, x_along, stream);
}

}  // namespace

void mm_wide(const Product& p, const Config& config, cudaStream_t stream) {
    if (p.dtype == DType::f16) run<__half>(p, config, stream);
    else run<__nv_bfloat16>(p, config, stream);
}

}  // namespace packedtri::cuda
