// Which products have small tiles whose operands go straight to registers: reads products from its input, one a line, as
// "float64 S@dense 96 32 16" with the number of matrices, and writes 1 or 0 for each, and by how many warps it would be.
#include <iostream>

#include "named_products.h"

int main() {
    for_each_batched_product([](const Product& p) {
        std::cout << cuda::goes_by_fragments(p, h100) << ' '
                  << cuda::choose_fragments(p, h100).split << '\n';
    });
}
