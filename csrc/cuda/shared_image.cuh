// Makes the tile image of a packed matrix from the matrix as it lies, both in shared memory.
#pragma once

#include "chunk.cuh"
#include "image.h"
#include "ptx.cuh"

namespace packedtri::cuda {

// Of a matrix of order `order`, with elements of 2 bytes, that begins `place` elements behind `raw`, a multiple of 16 bytes.
// Its image has the blocks on the diagonal and below: of a symmetric matrix those on the diagonal are mirrored, of a
// triangle zero above it. Rows past the end of the matrix stay as they are, but for the first seven.
class SharedImage {
    static constexpr uint32_t SIDE = Image::SIDE, CHUNK = 8, OCTET = 8, OCTETS = SIDE / OCTET;

  public:
    __device__ SharedImage(uint32_t raw, uint32_t place, uint32_t order, bool mirrored)
        : raw_(raw), place_(place), order_(order), mirrored_(mirrored) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t rows =
                place % 2 ? (half == 0 ? 0x3210u : 0x7654u) : (half == 0 ? 0x6320u : 0x7541u);
            y_[half] = rows >> lane() / 8 * 4 & 15;
            from_[half] = row_start<uint32_t>(y_[half]) + lane() % 8 * CHUNK;
            to_[half] = Image::chunk_offset(static_cast<int>(y_[half]), lane() % 8);
        }
    }

    // By `warps` warps, at least half as many as there are octets, 8 neighbouring rows. Each takes one from the start, where
    // rows have fewer blocks, and one from the end.
    __device__ __forceinline__ void make(uint32_t image, uint32_t warp, uint32_t warps) const {
        const uint32_t octets = (order_ + OCTET - 1) / OCTET;
        if (warp < octets) make_octet(image, warp);
        if (warp + warps < octets) make_octet(image, octets - 1 - warp);
    }

  private:
    __device__ static uint32_t lane() { return threadIdx.x % 32; }

    // A chunk of 8 elements a lane, of four rows at a time. Rows begin at numbers that are 0, 1, 3, 6, 2, 7, 5 and 4
    // modulo 8 behind the place of the matrix, and four that begin in words which differ modulo 4 meet different banks.
    __device__ __forceinline__ void make_octet(uint32_t image, uint32_t octet) const {
        const uint32_t row = octet / OCTETS, first = octet * OCTET;
        uint32_t to = image + row_start<uint32_t>(row) * Image::BLOCK_BYTES +
                      octet % OCTETS * (OCTET * Image::ROW_BYTES);
        // Of rows past the end the first one is read.
        uint32_t at[2], selector[2];
        bool exists[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            exists[half] = first + y_[half] < order_;
            const uint32_t start = row_start<uint32_t>(first) + first * y_[half],
                           e = place_ + (exists[half] ? start + from_[half] : 0);
            at[half] = raw_ + e / 2 * 4;
            selector[half] = e % 2 ? 0x5432 : 0x3210;
        }
#pragma unroll 1
        for (uint32_t col = 0; col < row; ++col) {
            uint4 words[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) words[half] = load(at[half], selector[half]);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (!exists[half]) words[half] = {};
                ptx::store_shared(to + to_[half], words[half]);
                at[half] += SIDE * 2;
            }
            to += Image::BLOCK_BYTES;
        }
        if (mirrored_) return mirror_octet(to, first, row * SIDE);
        // On the diagonal.
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const auto count = static_cast<int>(first - row * SIDE + y_[half] + 1) -
                               static_cast<int>(lane() % 8 * CHUNK);
            const uint4 word = load(at[half], selector[half]);
            ptx::store_shared(to + to_[half], clipped(word, exists[half] ? count : 0));
        }
    }

    __device__ __forceinline__ static uint4 load(uint32_t from, uint32_t selector) {
        uint32_t w[5];
#pragma unroll
        for (int x = 0; x < 5; ++x) w[x] = ptx::load_shared(from + 4 * x);
        return make_uint4(__byte_perm(w[0], w[1], selector), __byte_perm(w[1], w[2], selector),
                          __byte_perm(w[2], w[3], selector), __byte_perm(w[3], w[4], selector));
    }

    // Of a symmetric matrix, on its diagonal: element by element.
    __device__ __forceinline__ void mirror_octet(uint32_t to, uint32_t first, uint32_t col) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t i = first + y_[half], j = col + lane() % 8 * CHUNK;
            uint32_t w[4];
#pragma unroll
            for (int x = 0; x < 4; ++x)
                w[x] = element(i, j + 2 * x) | element(i, j + 2 * x + 1) << 16;
            ptx::store_shared(to + to_[half], make_uint4(w[0], w[1], w[2], w[3]));
        }
    }
    __device__ __forceinline__ uint32_t element(uint32_t row, uint32_t col) const {
        const uint32_t i = max(row, col), j = min(row, col);
        if (i >= order_) return 0;
        return ptx::load_shared_u16(raw_ + (place_ + row_start<uint32_t>(i) + j) * 2);
    }

    const uint32_t raw_, place_, order_;
    const bool mirrored_;
    // The lane's row of 8 in each half, and from where to where its chunk goes.
    uint32_t y_[2], from_[2], to_[2];
};

}  // namespace packedtri::cuda
