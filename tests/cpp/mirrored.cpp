// Which products with symmetric operands small tiles have that mirror them: reads products from its input, one a line, as
// "float64 S@dense 1024 256 1" with the number of matrices, and writes 1 or 0 for each, or 2 if they go through tile images,
// which were timed later (tile_images.cpp).
#include <iostream>

#include "named_products.h"

int main() {
    for_each_batched_product([](const Product& p) {
        const bool images = cuda::by_images(cuda::choose(p, hopper));
        std::cout << (images ? 2 : cuda::mirrored_pays(p, hopper)) << '\n';
    });
}
