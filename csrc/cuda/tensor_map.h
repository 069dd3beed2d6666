// How the copy engine of Hopper is told about dense matrices.
#pragma once

#include <cuda.h>

#include "../problem.h"

namespace packedtri::cuda {

// Boxes of so many rows, 64 unless told, of 128 bytes of `matrices` of a batch, in the order of the blocks of an image.
CUtensorMap map_of(const Operand& x, DType dtype, int64_t matrices);
CUtensorMap map_of(const Operand& x, DType dtype, int64_t matrices, int box_rows);

}  // namespace packedtri::cuda
