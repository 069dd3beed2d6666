// Which products with symmetric operands small tiles have that mirror them: reads products from its input, one a line, as
// "float64 S@dense 1024 256 1" with the number of matrices, and writes 1 or 0 for each.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string dtype, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> op >> n >> m >> batch) {
        const Product p = batched_product(op, named_dtype(dtype), n, m, batch);
        std::cout << cuda::mirrored_pays(p, hopper) << '\n';
    }
}
