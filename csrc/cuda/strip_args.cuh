// What the kernels for strips (strips.cuh, strips_16bit.cuh) are asked to do.
#pragma once

#include "scalar.cuh"
#include "strip_units.h"
#include "unit_shares.h"
#include "vector_args.cuh"

namespace packedtri::cuda {

template <class T>
struct StripArgs : VectorArgs<T> {
    static constexpr bool MEETS_ZEROS = sizeof(T) == 2;  // See add_parts_kernel.
    StripUnits units;
    int64_t all;  // Units of all matrices.
    int blocks;
    using Acc = typename Accumulator<T>::type;
    Acc* by_rows;  // STRIP_BAND elements of a group of vectors for each unit.
    // STRIP_WIDTH elements of them for each strip that a block has: see column_sums.
    Acc* by_columns;

    StripArgs(const Product& p, int multiprocessors)
        : VectorArgs<T>(p, strip_vectors(p)), units(strip_units(p.k)),
          all(units.all() * this->matrices()),
          blocks(static_cast<int>(std::min<int64_t>(all, multiprocessors))) {}

    // How many bytes of scratch memory the sums take.
    int64_t bytes() const {
        const StripSums sums =
            strip_sums(units, this->matrices(), blocks, this->rows, this->columns);
        return sums.all() * this->at_once * static_cast<int64_t>(sizeof(Acc));
    }
    void put_sums(void* memory) {
        const StripSums sums =
            strip_sums(units, this->matrices(), blocks, this->rows, this->columns);
        by_rows = static_cast<Acc*>(memory);
        by_columns = by_rows + sums.by_rows * this->at_once;
    }

    // A block comes from strip to strip, so block + strip is another number for each pair of them.
    __device__ Acc* column_sums(int64_t block, int64_t matrix, int strip) const {
        return by_columns + (block + matrix * units.strips() + strip) * STRIP_WIDTH * this->at_once;
    }

    // What blocks have of element i: sums along rows, one for each strip, then those down columns, one for each block.
    struct Parts {
        const StripArgs& args;
        const Acc *of_rows, *of_columns;
        int band, rows, count;
        __device__ const Acc* at(int s) const {
            return s < rows ? of_rows + int64_t{args.units.at(s, band)} * STRIP_BAND * args.at_once
                            : of_columns + int64_t{s - rows} * STRIP_WIDTH * args.at_once;
        }
    };
    __device__ Parts parts(int64_t matrix, int i) const {
        const int strip = i / STRIP_WIDTH, rows = this->rows ? strip + 1 : 0;
        const int64_t before = matrix * units.all(),
                      first = block_of_unit(before + units.before(strip), blocks, all),
                      last = block_of_unit(before + units.before(strip + 1) - 1, blocks, all);
        return {*this,
                by_rows + (before * STRIP_BAND + i % STRIP_BAND) * this->at_once,
                column_sums(first, matrix, strip) + int64_t{i % STRIP_WIDTH} * this->at_once,
                i / STRIP_BAND,
                rows,
                rows + (this->columns ? static_cast<int>(last - first) + 1 : 0)};
    }
};

}  // namespace packedtri::cuda
