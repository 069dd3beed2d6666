// Which sums the engine shares: reads products from its input, one a line, as "float32 tf32 L@dense 2048 384", and
// writes for each how many blocks share sums, and from how many tiles on.
#include <iostream>
#include <string>

#include "problems.h"

namespace {

Product product(const std::string& op, DType dtype, int64_t n, int64_t m) {
    if (op == "L@L") return lower_product(dtype, n);
    if (op == "L@L.mT") {
        Product p = lower_product(dtype, n);
        p.b = p.a;
        p.b.kind = Kind::Upper;
        return p;
    }
    Product p = dense_product(dtype, n);
    if (op == "L@U") return p;
    if (op == "U@L") {
        std::swap(p.a.kind, p.b.kind);
        return p;
    }
    p = times_columns(dtype, n, m);
    if (op == "U@dense") p.a.kind = Kind::Upper;
    if (op == "dense@L") std::swap(p.a, p.b);
    return p;
}

}  // namespace

int main() {
    std::string dtype, precision, op;
    int64_t n, m;
    while (std::cin >> dtype >> precision >> op >> n >> m) {
        Product p = product(op, dtype == "float32" ? DType::f32 : DType::bf16, n, m);
        p.tf32 = precision == "tf32";
        const cuda::Shared shared = cuda::share_engine_sums(p, hopper, 1);
        std::cout << shared.split << ' ' << shared.above << '\n';
    }
}
