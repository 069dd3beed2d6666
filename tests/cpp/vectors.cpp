// How a packed matrix is multiplied by a vector: reads products from its input, one a line, as "bfloat16 S@dense 96 1 264"
// with the number of matrices, and writes for each which kernel it has, how many elements of the result a block has, and
// how many warps.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    static const char* const ways[] = {"rows", "groups", "columns", "block", "parts", "held"};
    std::string dtype, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> op >> n >> m >> batch) {
        const auto choice =
            cuda::choose_mv(batched_product(op, named_dtype(dtype), n, m, batch), h100);
        std::cout << ways[static_cast<int>(choice.way)] << ' ' << choice.group << ' '
                  << choice.sharers << '\n';
    }
}
