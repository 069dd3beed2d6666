// Products of a packed matrix and vectors, which are bound by reading the matrix.
#pragma once

#include "kernels.h"

namespace packedtri::cpu {

// Whether a product has the kernels for one vector or for a few of them.
bool goes_by_vectors(const Product& p);
void mm_vectors(const Product& p, const Threads& threads);

}  // namespace packedtri::cpu
