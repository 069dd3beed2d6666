// Which sums small direct tiles share: reads products from its input, one a line, as "float64 L@dense 1024 256 1" with the
// number of matrices, and writes for each how many blocks share sums, from how many tiles on, and how many half tiles
// parts have at most where fewer share shorter ones (Config::graded).
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string dtype, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> op >> n >> m >> batch) {
        Product p = named_product(op, named_dtype(dtype), n, m);
        p.batch = batch;
        const cuda::SplitChoice choice = cuda::split_direct_sums(p, hopper).choice;
        std::cout << choice.split << ' ' << choice.above << ' ' << choice.graded << '\n';
    }
}
