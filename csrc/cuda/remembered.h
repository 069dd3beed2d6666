// What was chosen for a product, for more like it: an estimate takes as long as the host needs for a small product.
#pragma once

#include "choice.h"

namespace packedtri::cuda {

// `choose`, which is asked where this thread has had no such product lately.
Config remembered_choice(const Product& p, const Device& device, bool scratch);
// The same of `fastest_beside_dense`.
BesideDense remembered_beside_dense(const Product& p, const Device& device);
// The same of `tf32_tiles_win`.
bool remembered_tf32_tiles(const Product& p, const Device& device, int together = 1);

}  // namespace packedtri::cuda
