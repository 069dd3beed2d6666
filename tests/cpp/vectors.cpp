// How a packed matrix is multiplied by a vector: reads products from its input, one a line, as "bfloat16 S@dense 96 1 264"
// with the number of matrices, and writes for each which kernel it has, how many elements of the result a block has, and
// how many warps.
#include <iostream>

#include "named_products.h"

int main() {
    static const char* const ways[] = {"rows", "groups", "columns", "block", "parts", "held"};
    for_each_batched_product([](const Product& p) {
        const auto choice = cuda::choose_mv(p, h100);
        std::cout << ways[static_cast<int>(choice.way)] << ' ' << choice.group << ' '
                  << choice.sharers << '\n';
    });
}
