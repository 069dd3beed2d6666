// Which products that may be rounded to TF32 are: reads products from its input, one a line, as "S@dense 96 32 16" with
// the number of matrices, and writes 1 or 0 for each, or 2 if they have small tiles then (tf32.cpp).
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string op;
    int64_t n, m, batch;
    while (std::cin >> op >> n >> m >> batch) {
        const Product p = product_in_tf32(op, n, m, batch);
        const int rounded = cuda::settled(p, h100).tf32;
        std::cout << rounded + cuda::tf32_tiles_win(p, h100, 1) << '\n';
    }
}
