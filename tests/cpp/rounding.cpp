// Which products that may be rounded to TF32 are: reads products from its input, one a line, as "S@dense 96 32 16" with
// the number of matrices, and writes 1 or 0 for each, or 2 if they have small tiles then, or images in batches, which were
// timed later (tf32.cpp, tile_images.cpp).
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string op;
    int64_t n, m, batch;
    while (std::cin >> op >> n >> m >> batch) {
        const Product p = product_in_tf32(op, n, m, batch);
        const Product rounded = cuda::settled(p, h100);
        const bool tiles = rounded.tf32 && !cuda::leaves_to_dense(p, h100) &&
                           cuda::choose(rounded, h100).method == Method::Hopper;
        const bool later = tiles || (rounded.tf32 && cuda::images_pay_in_batch(p, h100, 1));
        std::cout << (later ? 2 : rounded.tf32) << '\n';
    }
}
