// Which products with symmetric operands small tiles have that mirror them: reads products from its input, one a line, as
// "float64 S@dense 1024 256 1" with the number of matrices, and writes 1 or 0 for each.
#include <iostream>
#include <sstream>
#include <string>

#include "named_products.h"

int main() {
    std::string line;
    while (std::getline(std::cin, line)) {
        const auto first = line.find(' '), packed = line.find(" packed");
        const std::string dtype = line.substr(0, first);
        const auto op_end = line.find(' ', first + 1);
        const std::string op = line.substr(first + 1, op_end - first - 1);
        const bool lower = packed != std::string::npos;
        int64_t n = 0, m = 0, batch = 0;
        std::istringstream(line.substr(lower ? packed + 7 : op_end)) >> n >> m >> batch;
        const Product p = symmetric_product(op, lower, named_dtype(dtype), n, m, batch);
        std::cout << cuda::mirrored_pays(p, hopper) << '\n';
    }
}
