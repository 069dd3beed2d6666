// Which products that may be rounded to TF32 are: reads products from its input, one a line, as "S@dense 96 32 16" with
// the number of matrices, and writes 1 or 0 for each.
#include <iostream>
#include <string>

#include "named_products.h"

namespace {

Product product(const std::string& op, int64_t n, int64_t m, int64_t batch) {
    if (op == "syrk") return gram_of_columns(DType::f32, n, m, batch);
    if (op == "S@S") return batched_product("S@S-packed", DType::f32, n, m, batch);
    if (op == "L@L") return lower_product(DType::f32, n, batch);
    if (op != "L@L.mT") return batched_product(op, DType::f32, n, m, batch);
    Product p = lower_product(DType::f32, n, batch);
    p.b = p.a;
    p.b.kind = Kind::Upper;
    return p;
}

}  // namespace

int main() {
    std::string op;
    int64_t n, m, batch;
    while (std::cin >> op >> n >> m >> batch) {
        Product p = product(op, n, m, batch);
        p.tf32 = true;
        std::cout << cuda::settled(p, h100).tf32 << '\n';
    }
}
