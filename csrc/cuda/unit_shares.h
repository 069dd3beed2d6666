// How units of work that follow one another are shared by blocks. Free of CUDA.
#pragma once

#include "../index.h"

namespace packedtri::cuda {

// `all` units in the same order for each of some blocks, of which each has at least one: where those of a block begin,
// and the block that has a unit.
PACKEDTRI_HD constexpr int64_t first_unit(int64_t block, int64_t blocks, int64_t all) {
    return all * block / blocks;
}
PACKEDTRI_HD constexpr int64_t block_of_unit(int64_t unit, int64_t blocks, int64_t all) {
    return ((unit + 1) * blocks - 1) / all;
}

}  // namespace packedtri::cuda
