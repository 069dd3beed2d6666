// Blocks of float32 in TF32 as float16: see ImageScale.
#pragma once

#include "image_source.cuh"
#include "ptx.cuh"

namespace packedtri::cuda {

// The power of two that a matrix is multiplied by. Elements are drawn from all of it, by one warp, the same for every
// block: each takes a line of the cache. Of a triangle half are on the diagonal, which often is its largest part.
class ScaleSample {
  public:
    // A lane has two. Nothing looks at them here, so that the loads of the block follow at once.
    __device__ __forceinline__ ScaleSample(const Panel<Tf32>& panel, const Tf32* data)
        : panel_(panel), data_(data), drawn_here_(threadIdx.x < 32), first_(draw(0)),
          second_(draw(1)) {}

    // The exponent, for all threads of the block.
    __device__ __forceinline__ int exponent() const {
        __shared__ int found;
        if (drawn_here_) {
            uint32_t largest = __reduce_max_sync(~0u, max(size(first_), size(second_)));
            for (int turn = 2; largest == 0 && turn < MOST_TURNS; ++turn)
                largest = __reduce_max_sync(~0u, size(draw(turn)));
            const int missing =
                ImageScale::LARGEST_SAMPLE - (static_cast<int>(largest >> 23) - 127);
            if (threadIdx.x == 0) found = largest == 0 ? 0 : max(-126, min(126, missing));
        }
        __syncthreads();
        return found;
    }

  private:
    static constexpr int MOST_TURNS = 16;  // Where nothing but zeros is found.

    __device__ __forceinline__ float draw(int turn) const {
        const uint32_t number = turn * 32 + threadIdx.x % 32;
        const int row = __umulhi(number * 2654435769u, panel_.rows), length = panel_.length(row);
        const int col =
            panel_.packed && number % 2 == 0 ? length - 1 : __umulhi(number * 1779033703u, length);
        return drawn_here_ && length > 0 ? data_[panel_.row_offset(row) + col].value : 0.f;
    }
    // As bits; zero of what is not finite.
    __device__ static uint32_t size(float x) {
        const uint32_t bits = __float_as_uint(fabsf(x));
        return bits < 0x7f800000 ? bits : 0;
    }

    const Panel<Tf32>& panel_;
    const Tf32* data_;
    const bool drawn_here_;
    const float first_, second_;
};

// One block by 256 threads: a warp every eighth row, two neighbours a lane.
class ScaledBlock {
    static constexpr int SIDE = Image::SIDE, WARPS = ImageScale::WARPS, ROWS = SIDE / WARPS;

  public:
    // `image`: of the matrix.
    __device__ __forceinline__ static void pack(const PackArgs<Tf32>& args, const Tf32* data,
                                                int row, int col, int64_t index, bool mirrored,
                                                char* image) {
        const ScaleSample sample(args.panel, data);
        ScaledBlock block;
        if (mirrored) block.read_mirrored(args, data, row, col);
        else if (args.panel.full(row * SIDE, col * SIDE, SIDE, SIDE))
            block.read_full(args, data, row, col);
        else block.read(args, data, row, col);
        const int exponent = sample.exponent();
        char* notes = image + args.part_bytes;
        if (index == 0 && threadIdx.x == 0) *reinterpret_cast<int2*>(notes) = {exponent, 0};
        // On the diagonal of a triangle without it some lines have no stored element.
        const bool lines = args.panel.reach > 0 || row != col;
        block.store(exponent, lines, image + index * Image::BLOCK_BYTES,
                    notes + (1 + index) * WARPS + warp());
    }

  private:
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
    __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
    __device__ static int row_of(int number) { return warp() + WARPS * number; }

    // All loads are under way before the first is waited for; of a block that is full by as few instructions as can be.
    __device__ __forceinline__ void read_full(const PackArgs<Tf32>& args, const Tf32* data, int row,
                                              int col) {
        const Panel<Tf32>& panel = args.panel;
        const int i = row * SIDE + warp(), more = panel.packed ? WARPS * WARPS : 0;
        const Tf32* from = data + panel.row_offset(i) + col * SIDE + 2 * lane();
        int64_t step = panel.row_offset(i + WARPS) - panel.row_offset(i);
#pragma unroll
        for (int r = 0; r < ROWS; ++r, from += step, step += more)
            x_[r] = {from[0].value, from[1].value};
        stored_ = ~0u;
    }
    __device__ __forceinline__ void read(const PackArgs<Tf32>& args, const Tf32* data, int row,
                                         int col) {
        ColumnWalk<Tf32, WARPS> walk(args.panel, data, row * SIDE + warp(),
                                     col * SIDE + 2 * lane());
#pragma unroll
        for (int r = 0; r < ROWS; ++r, walk.advance()) {
            x_[r] = {walk.at(0).value, walk.at(1).value};
            stored_ |= (walk.has(0) ? 1u : 0) << 2 * r | (walk.has(1) ? 2u : 0) << 2 * r;
        }
    }
    __device__ __forceinline__ void read_mirrored(const PackArgs<Tf32>& args, const Tf32* data,
                                                  int row, int col) {
        const MirroredBlock<Tf32> block(args, data, row, col);
        const int left = args.panel.cols - col * SIDE - 2 * lane();
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            x_[r] = {block.at(row_of(r), 2 * lane()).value,
                     block.at(row_of(r), 2 * lane() + 1).value};
            const bool row_exists = row * SIDE + row_of(r) < args.panel.rows;
            stored_ |= (row_exists && left > 0 ? 1u : 0) << 2 * r |
                       (row_exists && left > 1 ? 2u : 0) << 2 * r;
        }
    }

    // `lines`: whether each line of the matrix has a stored element here. There is little code, since none of it is in
    // the caches when a launch begins.
    __device__ __forceinline__ void store(int exponent, bool lines, char* to, char* note) const {
        const float factor = __int_as_float((exponent + 127) << 23);
        float least = ImageScale::STRONG, most = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float2 scaled{x_[r].x * factor, x_[r].y * factor};
            const float x = fabsf(scaled.x), y = fabsf(scaled.y);
            if (stored_ >> 2 * r & 1) least = fminf(least, x);
            if (stored_ >> 2 * r & 2) least = fminf(least, y);
            most = ptx::max_or_nan(most, ptx::max_or_nan(x, y));
            place(to, r) = __float22half2_rn(scaled);
        }
        bool strong = lines && least >= ImageScale::STRONG, clean = least >= ImageScale::SMALLEST;
        if (!__all_sync(~0u, least >= ImageScale::LEAST && most < ImageScale::TOO_LARGE)) {
            // Few warps meet elements that float16 does not hold, or zeros.
            strong = lines, clean = true;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float x = held(x_[r].x, factor, stored_ >> 2 * r & 1, strong, clean),
                            y = held(x_[r].y, factor, stored_ >> 2 * r & 2, strong, clean);
                place(to, r) = __floats2half2_rn(x, y);
            }
        }
        const uint8_t found = (__all_sync(~0u, strong) ? ImageScale::ALL_STRONG : 0) |
                              (__all_sync(~0u, clean) ? ImageScale::CLEAN : 0);
        if (lane() == 0) *note = static_cast<char>(found);
    }
    // What float16 holds of an element.
    __device__ __forceinline__ static float held(float x, float factor, bool stored, bool& strong,
                                                 bool& clean) {
        const float scaled = x * factor, size = fabsf(scaled);
        strong =
            strong && (!stored || (size >= ImageScale::STRONG && size < ImageScale::TOO_LARGE));
        clean = clean && (x == 0 || size >= ImageScale::SMALLEST);
        if (!(size < ImageScale::TOO_LARGE)) return NAN;
        return x != 0 && size < ImageScale::LEAST ? copysignf(ImageScale::LEAST, x) : scaled;
    }

    __device__ __forceinline__ static __half2& place(char* to, int r) {
        return *reinterpret_cast<__half2*>(to + Image::chunk_offset(row_of(r), lane() / 4) +
                                           lane() % 4 * 4);
    }

    float2 x_[ROWS];
    uint32_t stored_ = 0;  // Two bits a row.
};

}  // namespace packedtri::cuda
