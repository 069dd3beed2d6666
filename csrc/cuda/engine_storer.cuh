// How a warp of the engine stores the sums that it has of a tile.
#pragma once

#include "engine.cuh"

namespace packedtri::cuda {

template <class Shape, int PRODUCTS, class Across>
class EngineStorer {
    using T = typename Shape::T;
    using Args = EngineArgsOf<Shape, PRODUCTS>;
    using Result = EngineResult<T>;
    using Tile = typename Shape::Tile;
    static constexpr int SIDE = Shape::SIDE;

  public:
    __device__ EngineStorer(const Args& args, const EngineShared<Shape>& shared,
                            const EngineWarp<Shape>& warp)
        : args_(args), shared_(shared), warp_(warp) {}

    // Sums of a tile of this product and matrix, whose operands were multiplied by powers of two of this exponent.
    // `rows`: which of the warp's, a bit for each eight.
    __device__ void store(const EngineProduct<T>& p, int matrix, const Tile& tile, int rows,
                          int exponent, float* acc) const {
        if constexpr (Args::STORES) {
            if (args_.storing.wanted) return store_boxes(p, matrix, tile, rows, acc);
        }
        Result c = p.c;  // Copied, since what is indexed is not kept in registers.
        c.data += matrix * c.next;
        remove_scale(exponent, c.alpha, acc);
        if constexpr (Across::KNOWN) store<Across::B>(c, tile, rows, acc);
        else if (tile.ascending) store<true>(c, tile, rows, acc);
        else store<false>(c, tile, rows, acc);
    }

  private:
    // What the result is multiplied by, which is one, has room for it, or two factors of the sums have.
    __device__ __forceinline__ static void remove_scale(int exponent, float& alpha, float* acc) {
        if constexpr (!Shape::SCALED) return;
        const auto power = [](int exponent) { return __int_as_float((127 - exponent) << 23); };
        if (abs(exponent) <= 126) {
            alpha = power(exponent);
            return;
        }
        const int half = exponent / 2;
        const float first = power(half), second = power(exponent - half);
#pragma unroll
        for (int e = 0; e < Shape::ACCS; ++e) acc[e] = acc[e] * first * second;
    }

    // Where the elements of one row of the tile go. A row is staged at the same distance from 16-byte
    // boundaries as it has in memory, so that all but the few elements at its ends are stored 16
    // bytes at a time.
    struct Row {
        static constexpr int UNIT = 16 / static_cast<int>(sizeof(T));
        T* out;
        int count;

        __device__ Row(T* out, int count) : out(out), count(count) {}
        __device__ Row(const Result& c, int i, int j0) {
            out = c.data + row_offset(i, c.ld, c.packed) + (begins_at_zero(c) ? 0 : j0);
            const int end = c.lower ? min(i + 1, c.n) : c.n;
            count = i < c.m ? max(0, min(Shape::STAGED, end - j0)) : 0;
        }
        // Another of eight rows, of which four lanes each have one.
        __device__ Row of(int row) const {
            const auto address = reinterpret_cast<unsigned long long>(out);
            return {reinterpret_cast<T*>(__shfl_sync(~0u, address, 4 * row)),
                    __shfl_sync(~0u, count, 4 * row)};
        }
        __device__ int shift() const {
            return static_cast<int>(reinterpret_cast<uintptr_t>(out) % 16 / sizeof(T));
        }
    };

    // Whether rows are told from column zero on, since joined columns lie in several matrices.
    __device__ static bool begins_at_zero(const Result& c) {
        return !Shape::STORES_BOXES && c.joined > 0;
    }

    template <bool ASCENDING>
    __device__ __forceinline__ void store(const Result& c, const Tile& tile, int rows,
                                          const float* acc) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (!(rows >> half & 1)) continue;
#pragma unroll
            for (int first = 0; first < Shape::WN; first += Shape::STAGED)
                store_rows<ASCENDING>(c, tile, acc, half, first);
        }
    }

    // By the copy engine, which stores a box while the next one is staged, or the next tile multiplied.
    __device__ __forceinline__ void store_boxes(const EngineProduct<T>& p, int matrix,
                                                const Tile& tile, int rows,
                                                const float* acc) const {
        if constexpr (Across::KNOWN) store_boxes<Across::B>(p, matrix, tile, rows, acc);
        else if (tile.ascending) store_boxes<true>(p, matrix, tile, rows, acc);
        else store_boxes<false>(p, matrix, tile, rows, acc);
    }
    template <bool ASCENDING>
    __device__ __forceinline__ void store_boxes(const EngineProduct<T>& p, int matrix,
                                                const Tile& tile, int rows,
                                                const float* acc) const {
        const int lane = threadIdx.x % 32;
        const int i0 = (tile.i0 + warp_.row()) * SIDE + warp_.of_group() * 16;
        if (i0 >= p.c.m) return;
        const int joined = p.joined_blocks();
        const uint32_t boxes = ptx::shared_address(shared_.staging()) +
                               warp_.number() * Shape::BOXES * Shape::BOX_BYTES;
        // The row that this lane addresses of two matrices of 8 x 8, one above the other, and which of two such pairs.
        const int row = lane % 16, beside = lane / 16;
#pragma unroll
        for (int c = 0; c < Shape::WN / SIDE; ++c) {
            if (warp_.template column<ASCENDING>(c) >= tile.columns) break;
            const uint32_t box = boxes + c % Shape::BOXES * Shape::BOX_BYTES,
                           to = box + row * Image::ROW_BYTES;
            if (ptx::elect()) {
                // The boxes of the tile before may end with either.
                if (c == 0) ptx::bulk_store_read();
                else ptx::bulk_store_read<Shape::BOXES - 1>();
            }
            __syncwarp();
#pragma unroll
            for (int x = 0; x < SIDE / 8; x += 2) {
                const float* at = acc + warp_.template block<ASCENDING>(c) + 4 * x;
                uint32_t pairs[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const T both[2] = {Accumulator<T>::round(at[2 * e]),
                                       Accumulator<T>::round(at[2 * e + 1])};
                    pairs[e] = *reinterpret_cast<const uint32_t*>(both);
                }
                ptx::store_matrices(to + ((x + beside) ^ (row % 8)) * 16, pairs);
            }
            ptx::bulk_fence();
            __syncwarp();
            if (!ptx::elect()) continue;
            const int j = tile.j0 + warp_.template column<ASCENDING>(c),
                      to_matrix = joined > 0 ? j / joined : matrix;
            const int to_column = (joined > 0 ? j - to_matrix * joined : j) * SIDE;
            const auto store = [&](int first) {
                ptx::tensor_store(&args_.storing.map, box + first * Image::ROW_BYTES, to_matrix,
                                  i0 + first, to_column);
            };
            // See EngineLayout::box_rows.
            if (rows & 1) store(0);
            if (args_.split > 1 && (rows & 2)) store(8);
        }
    }

    // Stores 8 rows of each warp, STAGED columns from `first` on.
    template <bool ASCENDING>
    __device__ __forceinline__ void store_rows(const Result& c, const Tile& tile, const float* acc,
                                               int half, int first) const {
        const int lane = threadIdx.x % 32;
        const int i0 = (tile.i0 + warp_.row()) * SIDE + warp_.of_group() * 16,
                  j0 = (tile.j0 + warp_.template column<ASCENDING>(0)) * SIDE + first;
        T* const staging = shared_.staging(warp_.number());
        const Row row(c, i0 + half * 8 + lane / 4, j0);  // That it has sums of.
        T* const staged = staging + lane / 4 * Shape::PITCH;
        __syncwarp();
        stage<ASCENDING>(staged, row.shift(), acc, half, first / SIDE);
        __syncwarp();
        store_ends(c, row, staged);
        store_middles(c, row, j0, staging);
    }

    // Writes this lane's elements of its row to staging, from column `first` of blocks on.
    template <bool ASCENDING>
    __device__ __forceinline__ void stage(T* row, int shift, const float* acc, int half,
                                          int first) const {
        const int t = threadIdx.x % 4;
        const auto pair = [&](int c) {
            return acc + warp_.template block<ASCENDING>(first + c / 8) + 4 * (c % 8) + 2 * half;
        };
        T* const to = row + shift + 2 * t;
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int c = 0; c < Shape::STAGED / 8; ++c) {
                to[8 * c] = pair(c)[0];
                to[8 * c + 1] = pair(c)[1];
            }
        } else {
            // In a row that is staged at an odd place a word has the second element of the lane before and the
            // first of this one; the lane before the first is the last of the eight columns before. Two such
            // elements come at once.
            const bool odd = shift % 2 != 0, last = t == 3;
            const uint32_t first_word = odd ? 0x5410 : 0x7654, second_word = odd ? 0x5432 : 0x7654;
            const int before = static_cast<int>(threadIdx.x & 28) | ((t + 3) & 3);
            uint32_t* const words = reinterpret_cast<uint32_t*>(to - odd);
            uint32_t behind = 0;  // The word that this lane has of the eight columns before.
#pragma unroll
            for (int c = 0; c < Shape::STAGED / 8; c += 2) {
                const uint32_t x = rounded(pair(c)), y = rounded(pair(c + 1));
                const uint32_t sent = __byte_perm(last ? behind : x, last ? x : y, 0x7632);
                const uint32_t came = __shfl_sync(~0u, sent, before);
                words[4 * c] = __byte_perm(came, x, first_word);
                words[4 * c + 4] = __byte_perm(came, y, second_word);
                behind = y;
            }
            if (odd && last)
                to[Shape::STAGED - 7] = Accumulator<T>::round(pair(Shape::STAGED / 8 - 1)[1]);
        }
    }
    // Two sums as a word.
    __device__ __forceinline__ static uint32_t rounded(const float* pair) {
        const T both[2] = {Accumulator<T>::round(pair[0]), Accumulator<T>::round(pair[1])};
        return *reinterpret_cast<const uint32_t*>(both);
    }

    // Of joined columns, which are aligned, there is nothing else.
    __device__ __forceinline__ void store_middles(const Result& c, const Row& own, int j0,
                                                  const T* staging) const {
        constexpr int UNIT = Row::UNIT, LANES = Shape::STAGED / UNIT, AT_ONCE = 32 / LANES,
                      COUNT = 8 / AT_ONCE;
        const int lane = threadIdx.x % 32, first = lane / LANES, x = lane % LANES * UNIT;
        const int64_t along = begins_at_zero(c) ? c.column(j0 + x) : x;
        // All are read before the first is stored, since a store might be to what is read next, for all that is known.
        uint4 words[COUNT];
#pragma unroll
        for (int y = 0; y < COUNT; ++y)
            words[y] =
                *reinterpret_cast<const uint4*>(staging + (first + y * AT_ONCE) * Shape::PITCH + x);
#pragma unroll
        for (int y = 0; y < COUNT; ++y) {
            const Row row = own.of(first + y * AT_ONCE);
            const int shift = row.shift();
            T* const to = row.out - shift + along;
            if (x >= shift && x + UNIT <= shift + row.count)
                ptx::store_global(to, blend(c, words[y], to));
        }
    }

    // The elements of a row before the first boundary and after the last, by the four lanes that have its sums.
    __device__ __forceinline__ void store_ends(const Result& c, const Row& row,
                                               const T* staged) const {
        constexpr int UNIT = Row::UNIT, EACH = UNIT / 4;
        const int shift = row.shift(), end = shift + row.count, last = end / UNIT * UNIT;
        const int place = static_cast<int>(threadIdx.x) % 4 * EACH;
        T* const begin = row.out - shift;
        // Places in staging: of the first unit, if it begins with elements of another row, and of the last one, if
        // that is not the first.
        const auto in_head = [&](int x) { return shift > 0 && x >= shift && x < end; };
        const auto in_tail = [&](int x) { return x < end && (shift == 0 || last >= UNIT); };
        const Ends head(staged + place), tail(staged + last + place);
        head.store(c, begin + place, in_head(place), in_head(place + EACH - 1));
        tail.store(c, begin + last + place, in_tail(last + place),
                   in_tail(last + place + EACH - 1));
    }

    // What a lane has of an end: one element of 4 bytes, or two that are one word.
    struct Ends {
        uint32_t word;

        __device__ explicit Ends(const T* staged)
            : word(*reinterpret_cast<const uint32_t*>(staged)) {}
        __device__ __forceinline__ void store(const Result& c, T* to, bool first,
                                              bool second) const {
            if constexpr (sizeof(T) == 4) {
                if (first) ptx::store_global(to, blend(c, __uint_as_float(word), to));
            } else {
                const auto one = static_cast<uint16_t>(second ? word >> 16 : word);
                ptx::store_if(reinterpret_cast<uint32_t*>(to), word, first && second);
                ptx::store_if(reinterpret_cast<uint16_t*>(to) + second, one, first != second);
            }
        }
    };

    // alpha AB + beta C. Only float32 comes with other factors than 1 and 0.
    __device__ static uint4 blend(const Result& c, uint4 staged, const T* there) {
        if constexpr (sizeof(T) == 4) {
            float4 x = *reinterpret_cast<float4*>(&staged);
            x.x *= c.alpha, x.y *= c.alpha, x.z *= c.alpha, x.w *= c.alpha;
            if (c.beta != 0) {
                const float4 y = *reinterpret_cast<const float4*>(there);
                x.x += c.beta * y.x, x.y += c.beta * y.y;
                x.z += c.beta * y.z, x.w += c.beta * y.w;
            }
            return *reinterpret_cast<uint4*>(&x);
        }
        return staged;
    }
    __device__ static T blend(const Result& c, T staged, const T* there) {
        if constexpr (sizeof(T) == 4)
            return c.alpha * staged + (c.beta != 0 ? c.beta * *there : 0.f);
        return staged;
    }

    const Args& args_;
    const EngineShared<Shape> shared_;
    const EngineWarp<Shape> warp_;
};

}  // namespace packedtri::cuda
