// How 16-bit triangles and dense matrices of aligned rows are multiplied: reads products from its input, one a line, as
// "bfloat16 L@dense 512 512 8", and writes for each which way it goes, and as splits.cpp which sums are shared.
#include <iostream>

#include "named_products.h"

const char* way_of(const Product& p, const Config& config) {
    if (cuda::leaves_to_dense(p, h100)) return "dense";
    if (cuda::by_images(config)) return "engine";
    if (config.method == Method::SharedImages) return "images";
    if (cuda::is_wide_mapped(config)) return "long";
    return config.method == Method::Mapped || config.method == Method::Hopper ? "square" : "else";
}

int main() {
    for_each_batched_product([](const Product& p) {
        const Config config = cuda::choose(p, h100);
        std::cout << way_of(p, config) << ' ' << config.split << ' ' << config.split_above << ' '
                  << config.graded << '\n';
    });
}
