// Which batches have images of their packed operands in shared memory: reads products from its input, one a line, as
// "bfloat16 L@L-packed 96 96 264" with the number of matrices, and writes 1 or 0 for each.
#include <iostream>

#include "named_products.h"

int main() {
    for_each_batched_product(
        [](const Product& p) { std::cout << cuda::goes_by_shared_images(p, h100) << '\n'; });
}
