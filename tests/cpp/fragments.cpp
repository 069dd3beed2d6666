// Which products have small tiles whose operands go straight to registers: reads products from its input, one a line, as
// "float64 S@dense 96 32 16" with the number of matrices, and writes 1 or 0 for each, and by how many warps it would be.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string dtype, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> op >> n >> m >> batch) {
        const Product p = batched_product(op, named_dtype(dtype), n, m, batch);
        std::cout << cuda::goes_by_fragments(p, h100) << ' '
                  << cuda::choose_fragments(p, h100).split << '\n';
    }
}
