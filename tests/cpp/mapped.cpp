// How small tiles of 16-bit elements have a dense operand that the copy engine brings: reads products from its input, one a
// line, as "bfloat16 S@dense 1024 256 1", and writes for each whether its tiles are square or long, or that something else
// has the product, and as splits.cpp which sums are shared.
#include <iostream>

#include "named_products.h"

int main() {
    for_each_batched_product([](const Product& p) {
        const Config config = cuda::choose(p, h100);
        // The kernels for vectors are newer than the timings.
        const char* const others = config.method == Method::Wide     ? "wide"
                                   : config.method == Method::Strips ? "strips"
                                                                     : "else";
        const bool mapped = !cuda::leaves_to_dense(p, h100) && config.method == Method::Mapped;
        std::cout << (!mapped                        ? others
                      : cuda::is_wide_mapped(config) ? "long"
                                                     : "square")
                  << ' ' << config.split << ' ' << config.split_above << ' ' << config.graded
                  << '\n';
    });
}
