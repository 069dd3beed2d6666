// Which products that may be rounded to TF32 have small tiles of operands as they lie in memory: reads products from its
// input, one a line, as "S@dense 96 32 16" with the number of matrices, and writes 1 or 0 for each, and how sums are shared
// by such tiles, as splits.cpp does.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string op;
    int64_t n, m, batch;
    while (std::cin >> op >> n >> m >> batch) {
        const Product p = product_in_tf32(op, n, m, batch);
        const cuda::SplitChoice choice = cuda::split_direct_sums(p, hopper).choice;
        std::cout << cuda::tf32_tiles_win(p, hopper, 1) << ' ' << choice.split << ' '
                  << choice.above << ' ' << choice.graded << '\n';
    }
}
