// Which sums the engine shares: reads products from its input, one a line, as "float32 tf32 L@dense 2048 384", and
// writes for each which tiles it has, how many blocks share sums, and from how many tiles on.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string dtype, precision, op;
    int64_t n, m;
    while (std::cin >> dtype >> precision >> op >> n >> m) {
        Product p = named_product(op, named_dtype(dtype), n, m);
        p.tf32 = precision == "tf32";
        const cuda::Shared shared = cuda::share_engine_sums(p, hopper, 1);
        std::cout << (shared.tile == TileSize::Half ? "half " : "small ") << shared.split << ' '
                  << shared.above << '\n';
    }
}
