// Which products are left to dense torch because one dimension is much longer than the others: reads products from its
// input, one a line, as "float32 L@dense 16 100000 1" with the number of matrices, and writes 1 or 0 for each.
#include <iostream>
#include <string>

#include "named_products.h"

int main() {
    std::string dtype, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> op >> n >> m >> batch) {
        const bool tf32 = dtype == "tf32";
        const DType type = tf32 ? DType::f32 : named_dtype(dtype);
        Product p = op == "syrk" ? gram_of_columns(type, n, m, batch)
                                 : batched_product(op, type, n, m, batch);
        p.tf32 = tf32;
        std::cout << cuda::leaves_to_dense(p, h100) << '\n';
    }
}
