// What the warps of wide.cuh that load do.
#pragma once

#include "wide.cuh"

namespace packedtri::cuda {

// Copies pieces of rows, one row a thread at a time.
template <class T, int C>
class WideLoader {
    using Tile = WideTile<C>;
    using Barriers = WideBarriers<C>;

  public:
    __device__ WideLoader(const WideArgs<T>& args, char* shared)
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
        const int thread = static_cast<int>(threadIdx.x) - WIDE_MULTIPLIERS;
        char* const stage = shared_ + stages_ % Tile::RAW_STAGES * Tile::RAW_BYTES;
        if (stages_ >= Tile::RAW_STAGES)
            ptx::mbarrier_wait(barriers_.rows_used(stages_), Barriers::rows_parity(stages_) ^ 1);
        const int lines = ROWS ? WIDE_OUT : tiles * WIDE_STEPS,
                  length = ROWS ? tiles * WIDE_STEPS : WIDE_OUT;
        for (int line = thread; line < lines; line += WIDE_LOADERS)
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

}  // namespace packedtri::cuda
