// How 16-bit triangles and dense matrices of aligned rows are multiplied: reads products from its input, one a line, as
// "bfloat16 L@dense 512 512 8", and writes for each which way it goes, and as splits.cpp which sums are shared.
#include <iostream>
#include <string>

#include "named_products.h"

std::string way_of(const Product& p) {
    if (cuda::leaves_to_dense(p, h100)) return "dense";
    const Config config = cuda::choose(p, h100);
    if (cuda::by_images(config)) return "engine";
    if (config.method == Method::SharedImages) return "images";
    if (cuda::is_wide_mapped(config)) return "long";
    return config.method == Method::Mapped || config.method == Method::Hopper ? "square" : "else";
}

int main() {
    std::string dtype, op;
    int64_t n, m, batch;
    while (std::cin >> dtype >> op >> n >> m >> batch) {
        const Product p = batched_product(op, named_dtype(dtype), n, m, batch);
        const Config config = cuda::choose(p, h100);
        std::cout << way_of(p) << ' ' << config.split << ' ' << config.split_above << ' '
                  << config.graded << '\n';
    }
}
