// Which kernel products of a packed matrix and some vectors have: reads products from its input, one a line, as
// "bfloat16 S@dense 4096 64 1" with the number of matrices, and writes for each whether it is the one for a hundred vectors
// or so, the one for strips, or another.
#include <iostream>

#include "named_products.h"

int main() {
    for_each_batched_product([](const Product& p) {
        const Method method = cuda::choose(p, hopper).method;
        std::cout << (method == Method::Wide     ? "wide"
                      : method == Method::Strips ? "strips"
                                                 : "others")
                  << '\n';
    });
}
