// Writing a block of a matrix into its packed triangle. Rows that lie below the diagonal are copied as they are;
// what lies above it goes to rows that are columns of the block.
#include <algorithm>
#include <cstring>

#include "../index.h"
#include "kernels.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

// Elements are moved as they are, so any type of their size and with their parts will do.
template <class R, int reals>
struct Moved {
    R part[reals];

    Moved as_stored(bool conjugate, bool on_diagonal) const {
        Moved x = *this;
        if constexpr (reals == 2) {
            if (conjugate) x.part[1] = -x.part[1];
            if (on_diagonal) x.part[1] = 0;
        }
        return x;
    }
};

// One matrix of the batch.
template <class E>
class Writer {
  public:
    Writer(const BlockConversion& b, int64_t batch)
        : b_(b), packed_(static_cast<E*>(b.whole.packed) + batch * b.whole.packed_batch_stride),
          dense_(static_cast<const E*>(b.whole.dense) + batch * b.whole.dense_batch_stride) {}

    // Row i of the matrix, as far as it is stored in that row.
    void below(int64_t i) const {
        const int64_t count = std::min(b_.left + b_.cols, i + 1) - b_.left;
        if (count <= 0) return;
        std::copy_n(at(i, b_.left), count, packed_ + offset(i, b_.left));
        if (i < b_.left + b_.cols) write(i, i);
    }

    // Columns [j0, j1) of the matrix, as far as they are stored in the rows of these numbers.
    void above(int64_t j0, int64_t j1) const {
        constexpr int64_t side = 32;
        const int64_t bottom = std::min(b_.top + b_.rows, j1);
        for (int64_t i0 = b_.top; i0 < bottom; i0 += side)
            for (int64_t j = j0; j < j1; ++j)
                for (int64_t i = i0; i < std::min({i0 + side, bottom, j + 1}); ++i)
                    if (!stored_below(i, j)) write(i, j);
    }

  private:
    const E* at(int64_t i, int64_t j) const {
        return dense_ + (i - b_.top) * b_.whole.row_stride + (j - b_.left);
    }
    void write(int64_t i, int64_t j) const {
        const bool hermitian = b_.whole.hermitian;
        packed_[offset(std::max(i, j), std::min(i, j))] =
            at(i, j)->as_stored(hermitian && i < j, hermitian && i == j);
    }
    // Whether the block has the element that mirrors (i, j) too, which then is written in its place.
    bool stored_below(int64_t i, int64_t j) const {
        return b_.whole.kind == Kind::Symmetric && j >= b_.top && j < b_.top + b_.rows &&
               i >= b_.left && i < b_.left + b_.cols;
    }

    const BlockConversion& b_;
    E* packed_;
    const E* dense_;
};

template <class E>
void write_as(const BlockConversion& b, const Threads& threads) {
    // As many rows and columns as are worth a task.
    constexpr int64_t elements = 1 << 16;
    const auto share = [&](int64_t lines, int64_t length, const auto& write) {
        const int64_t size = std::max<int64_t>(32, elements / length),
                      parts = ceil_div(lines, size);
        for_each_group(threads, b.whole.batch * parts, size * length, [&](int64_t t) {
            const int64_t begin = t % parts * size;
            write(Writer<E>(b, t / parts), begin, std::min(begin + size, lines));
        });
    };
    if (b.whole.kind != Kind::Upper)
        share(b.rows, b.cols, [&](const Writer<E>& writer, int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) writer.below(b.top + i);
        });
    if (b.whole.kind != Kind::Lower && b.left + b.cols > b.top)
        share(b.cols, b.rows, [&](const Writer<E>& writer, int64_t begin, int64_t end) {
            for (int64_t j = begin; j < end; j += 32)
                writer.above(b.left + j, b.left + std::min(j + 32, end));
        });
}

}  // namespace

void write_block(const BlockConversion& b, const Threads& threads) {
    switch (b.whole.dtype) {
        case DType::f16:
        case DType::bf16: return write_as<Moved<uint16_t, 1>>(b, threads);
        case DType::f32: return write_as<Moved<uint32_t, 1>>(b, threads);
        case DType::f64: return write_as<Moved<uint64_t, 1>>(b, threads);
        case DType::c64: return write_as<Moved<float, 2>>(b, threads);
        case DType::c128: return write_as<Moved<double, 2>>(b, threads);
    }
}

}  // namespace packedtri::cpu
