// Which batches have images of their packed operands in shared memory: reads products from its input, one a line, as
// "bfloat16 L@L-packed 96 96 264" with the number of matrices, and writes 1 or 0 for each.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string dtype, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> op >> n >> m >> batch)
        std::cout << cuda::goes_by_shared_images(
                         batched_product(op, named_dtype(dtype), n, m, batch), h100)
                  << '\n';
}
