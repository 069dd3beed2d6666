// What was chosen for a product, for more like it: an estimate takes as long as the host needs for a small product.
#pragma once

#include <optional>

#include "choice.h"

namespace packedtri::cuda {

// `choose`, which is asked where this thread has had no such product lately.
Config remembered_choice(const Product& p, const Device& device, bool scratch);
// The same of `fastest_beside_dense`; nothing where it has no estimates.
std::optional<BesideDense> way_beside_dense(const Product& p, const Device& device);
// Whether that is by small tiles.
inline bool by_small_tiles(std::optional<BesideDense> way) {
    return way == BesideDense::Square || way == BesideDense::Long;
}
// The same of `tf32_tiles_win`.
bool remembered_tf32_tiles(const Product& p, const Device& device, int together = 1);

}  // namespace packedtri::cuda
