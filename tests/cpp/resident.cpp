// Which batches have their packed operand in shared memory as a whole: reads products from its input, one a line, as
// "float64 S@dense 96 32 264" with the number of matrices, and writes 1 or 0 for each, and which tiles, how many warps and
// how many matrices a block would have.
#include <iostream>

#include "named_products.h"

int main() {
    for_each_batched_product([](const Product& p) {
        const Config c = cuda::choose_resident(p, h100);
        std::cout << cuda::goes_resident(p, h100) << ' '
                  << (c.tile == TileSize::Large ? "large" : "small") << ' ' << c.split << ' '
                  << c.group << '\n';
    });
}
