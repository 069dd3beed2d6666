// Which products go through tile images: reads products from its input, one a line, as "float32 tf32 L@dense 512 256 8", and
// writes 1 or 0 for each.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string dtype, precision, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> precision >> op >> n >> m >> batch) {
        const bool square = op == "S@S";
        Product asked = typed_product(square ? "S@S-packed" : op, named_dtype(dtype), n, m, batch);
        // A symmetric matrix times itself.
        if (square) asked.b = asked.a;
        asked.tf32 = precision == "tf32";
        const Product p = cuda::settled(asked, h100);
        std::cout << (!cuda::leaves_to_dense(p, h100) && cuda::by_images(cuda::choose(p, h100)))
                  << '\n';
    }
}
