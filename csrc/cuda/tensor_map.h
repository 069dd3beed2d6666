// How the copy engine of Hopper is told about dense matrices.
#pragma once

#include <cuda.h>

#include "../problem.h"

namespace packedtri::cuda {

// Boxes of 64 rows of 128 bytes of `matrices` of a batch, in the order of the blocks of an image.
CUtensorMap map_of(const Operand& x, DType dtype, int64_t matrices);

}  // namespace packedtri::cuda
