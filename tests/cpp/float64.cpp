// How products of float64 are computed from operands as they lie in memory: reads products from its input, one a line, as
// "L@dense 1024 256 1" with the number of matrices, and writes for each whether its blocks go from tile to tile, with small
// or large tiles, or which sums its direct tiles share, as splits.cpp does.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string op;
    int64_t n, m, batch;
    while (std::cin >> op >> n >> m >> batch) {
        Product p = named_product(op, DType::f64, n, m);
        p.batch = batch;
        const Config c = cuda::choose_direct(p, hopper, true);
        const char* tiles = c.tile == TileSize::Large ? "large" : "small";
        std::cout << (cuda::is_persistent(DType::f64, c) ? tiles : "direct") << ' ' << c.split
                  << ' ' << c.split_above << ' ' << c.graded << '\n';
    }
}
