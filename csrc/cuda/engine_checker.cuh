// The warps that look for what scaled images (ImageScale) have lost, while others multiply them.
#pragma once

#include "engine.cuh"

namespace packedtri::cuda {

// The lines of all products and matrices of a launch, by numbers.
template <class Shape, int PRODUCTS>
class EngineLines {
  public:
    struct Line {
        bool of_a;
        int product, matrix;
        int number;  // Among the rows of blocks of A, or columns of B.
    };
    using Args = EngineArgsOf<Shape, PRODUCTS>;

    __device__ explicit EngineLines(const Args& args) : args_(args), each_(0) {
        for (int p = 0; p < PRODUCTS; ++p) each_ += args.of[p].m_blocks() + args.of[p].n_blocks;
    }

    __device__ int all() const { return each_ * args_.matrices; }
    __device__ Line at(int number) const {
        const int matrix = number / each_;
        int rest = number % each_, product = 0;
        for (;; ++product) {
            const int of_a = args_.of[product].m_blocks(), both = of_a + args_.of[product].n_blocks;
            if (rest < of_a) return {true, product, matrix, rest};
            if (rest < both) return {false, product, matrix, rest - of_a};
            rest -= both;
        }
    }

  private:
    const Args& args_;
    int each_;
};

// One of each block of threads. They draw lines, which are the 64 rows of A or columns of B of some blocks, and note
// which have lost too much. In the end each waits until all have been looked at: who has drawn a line runs, and waits
// for nobody before.
template <class Shape, int PRODUCTS>
class EngineChecker {
    using T = typename Shape::T;
    using Args = EngineArgsOf<Shape, PRODUCTS>;
    using Lines = EngineLines<Shape, PRODUCTS>;

  public:
    // Apart from the code of the other warps, which is slower with this in its way.
    __device__ __noinline__ static void run(const Args& args, const EngineShared<Shape>& shared) {
        ptx::wait_for_dependency();
        const Lines lines(args);
        for (int number = draw(args); number < lines.all(); number = draw(args)) {
            const auto line = lines.at(number);
            const EngineProduct<T>& p = args.of[PRODUCTS > 1 ? line.product : 0];
            const bool lossy =
                is_lossy(line.of_a ? p.a : p.b, line.matrix, line.number, p.k_blocks);
            if (lane() > 0) continue;
            if (lossy) {
                *p.line(line.matrix, line.of_a, line.number) = 1;
                args.counters[EngineCounters::LOSSY] = 1;
            }
            ptx::release_increment(args.counters + EngineCounters::CHECKED);
        }
        if (lane() > 0) return;
        while (ptx::load_relaxed(args.counters + EngineCounters::CHECKED) < lines.all()) {
        }
        ptx::acquire();
        *shared.lossy() = ptx::load_relaxed(args.counters + EngineCounters::LOSSY);
    }

  private:
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
    __device__ static int draw(const Args& args) {
        int* drawn = args.counters + EngineCounters::LINES;
        return __shfl_sync(~0u, lane() == 0 ? atomicAdd(drawn, 1) : 0, 0);
    }

    // Of most lines it is known by the note of one block that all have strong elements, or by those of all that none
    // has lost bits.
    __device__ static bool is_lossy(const EngineOperand& x, int matrix, int line, int k_blocks) {
        constexpr uint32_t STRONG = ImageScale::ALL_STRONG * 0x01010101u,
                           CLEAN = ImageScale::CLEAN * 0x01010101u;
        const uint2* notes = x.notes(matrix);
        bool strong = false, clean = true;
        for (int k = lane(); k < k_blocks; k += 32) {
            const int64_t block = block_at(x, line, k);
            if (block < 0) continue;
            const uint2 note = __ldcg(notes + 1 + block);
            strong = strong || (note.x & note.y & STRONG) == STRONG;
            clean = clean && (note.x & note.y & CLEAN) == CLEAN;
        }
        if (__any_sync(~0u, strong) || __all_sync(~0u, clean)) return false;
        return read_line(x, reinterpret_cast<const char*>(notes) - x.part_bytes, line, k_blocks);
    }
    // The block that an operand has in a line at k; negative where there is none.
    __device__ __forceinline__ static int64_t block_at(const EngineOperand& x, int line, int k) {
        const bool across = k >= x.run.turn(line);
        const int row = across ? k : line, col = across ? line : k;
        return x.blocks.has(row, col) ? x.blocks.index(row, col) : -1;
    }

    // Whether some line has lost bits and has no strong element. Begins at the diagonal.
    __device__ static bool read_line(const EngineOperand& x, const char* image, int line,
                                     int k_blocks) {
        uint2 strong{}, lossy{};
        for (int step = 0; step < k_blocks; ++step) {
            const int k = (line + step) % k_blocks;
            const int64_t block = block_at(x, line, k);
            if (block < 0) continue;
            read_block(image + block * Image::BLOCK_BYTES, k >= x.run.turn(line), strong, lossy);
            if ((strong.x & strong.y) == ~0u) return false;
        }
        return ((lossy.x & ~strong.x) | (lossy.y & ~strong.y)) != 0;
    }

    // Adds which of the 64 rows of a block, or columns, have strong elements, and which have some that lost bits.
    __device__ static void read_block(const char* block, bool columns, uint2& strong,
                                      uint2& lossy) {
        constexpr int CHUNKS = Image::ROW_BYTES / 16, ROWS = 32 / CHUNKS, COUNT = 16 / 2;
        constexpr uint32_t LARGEST = 0x7bff;  // Of float16.
        const int chunk = lane() % CHUNKS;
#pragma unroll 4
        for (int first = 0; first < Image::SIDE; first += ROWS) {
            const int row = first + lane() / CHUNKS;
            const uint4 words =
                __ldcg(reinterpret_cast<const uint4*>(block + Image::chunk_offset(row, chunk)));
            const uint32_t word[4] = {words.x, words.y, words.z, words.w};
            uint32_t is_strong = 0, is_lossy = 0;  // Of the chunk's elements.
#pragma unroll
            for (int e = 0; e < COUNT; ++e) {
                const uint32_t size = word[e / 2] >> e % 2 * 16 & 0x7fff;
                const bool finite = size <= LARGEST;  // Of others nothing else may come.
                is_strong |= (finite && size >= bits_of(ImageScale::STRONG) ? 1u : 0) << e;
                is_lossy |= (size > 0 && size < bits_of(ImageScale::SMALLEST) ? 1u : 0) << e;
            }
            const int line = columns ? chunk * COUNT : row;
            if (!columns) is_strong = is_strong != 0, is_lossy = is_lossy != 0;
            (line < 32 ? strong.x : strong.y) |= is_strong << line % 32;
            (line < 32 ? lossy.x : lossy.y) |= is_lossy << line % 32;
        }
        strong = {__reduce_or_sync(~0u, strong.x), __reduce_or_sync(~0u, strong.y)};
        lossy = {__reduce_or_sync(~0u, lossy.x), __reduce_or_sync(~0u, lossy.y)};
    }
    // Of a power of two as float16.
    __device__ static uint32_t bits_of(float power) {
        return __half_as_ushort(__float2half_rn(power));
    }
};

}  // namespace packedtri::cuda
