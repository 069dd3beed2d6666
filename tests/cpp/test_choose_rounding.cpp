// Which products that may be rounded to TF32 are, and which are left to dense torch for one long dimension.
#include "named_products.h"

Product rounded(Product p) {
    p.tf32 = true;
    return p;
}
Product products_of(const char* op, int64_t n, int64_t m, int64_t batch = 1) {
    return rounded(batched_product(op, DType::f32, n, m, batch));
}
bool rounds(const Product& p, int together = 1, const cuda::Device& device = h100) {
    return cuda::settled(p, device, together).tf32;
}

void rounding() {
    CHECK(!rounds(products_of("L@dense", 192, 192)) && rounds(products_of("L@dense", 256, 256)),
          "order");
    CHECK(!rounds(products_of("L@dense", 192, 192)) && rounds(products_of("L@dense", 192, 192, 8)),
          "all of a batch count");
    CHECK(!rounds(products_of("L@dense", 4096, 48)) && rounds(products_of("L@dense", 4096, 64)),
          "few columns");
    CHECK(!rounds(products_of("S@S-packed", 400, 400)) &&
              rounds(products_of("S@S-packed", 500, 500), 2),
          "two together, as both gradients are");
    CHECK(rounds(products_of("L@dense", 256, 256), 1, hopper), "where nothing was timed");
    for (const char* op : {"L@L-packed", "L@U", "L@dense", "S@dense", "S@S-packed", "L@S"})
        for (const int64_t n : {8, 100, 500, 1000})
            for (const int64_t batch : {1, 8, 200}) {
                const Product once = cuda::settled(products_of(op, n, n, batch), h100),
                              twice = cuda::settled(once, h100);
                CHECK(once.tf32 == twice.tf32, "%s of %d: settled twice", op, (int)n);
                Product exact = products_of(op, n, n, batch);
                exact.tf32 = false;
                CHECK(!rounds(exact), "%s of %d must not be rounded", op, (int)n);
            }
    cuda::force(1, -1, -1, -1, -1);
    CHECK(rounds(products_of("L@dense", 256, 256)), "forced");
    cuda::force(-1, -1, -1, -1, -1);
}

// Where it is computed, as `explain` tells it.
std::string told(const Product& p) { return cuda::explain(p, h100); }
bool left(const Product& p) { return told(p) == "unpacked, then dense torch"; }

void ranges() {
    const auto symmetric = [](int64_t n) { return products_of("S@dense", n, n); };
    const auto gram_of = [](int64_t n) { return rounded(gram(DType::f32, n, 1)); };
    for (const int64_t n : {208, 256, 528, 832, 1000})
        CHECK(!left(products_of("L@dense", n, n)), "a triangle, %d", (int)n);
    CHECK(!left(gram_of(256)) && !left(gram_of(704)) && left(gram_of(768)) && !left(gram_of(832)) &&
              !left(gram_of(1000)),
          "syrk");
    for (const int64_t n : {352, 560, 600}) CHECK(!left(symmetric(n)), "symmetric, %d", (int)n);
    for (const int64_t n : {300, 480, 530, 600}) {
        Product p = products_of("S@S-packed", n, n);
        p.b = p.a;
        CHECK(!left(p), "S @ S of %d: %s", (int)n, told(p).c_str());
    }
}

void long_ones() {
    const DType types[] = {DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};
    for (const DType type : types)
        for (const char* op : {"L@dense", "dense@U", "S@dense", "dense@S"}) {
            CHECK(left(batched_product(op, type, 16, 1000000, 1)), "%s of a million", op);
            CHECK(left(batched_product(op, type, 100, 100000, 1)), "%s, order 100", op);
            CHECK(!left(batched_product(op, type, 16, 200, 1)), "%s of a few", op);
        }
    CHECK(!left(rounded(batched_product("dense@U", DType::f32, 8, 1000000, 1))) &&
              left(batched_product("dense@U", DType::f32, 8, 1000000, 1)),
          "short rows, which dense torch is slow with where it rounds");
    for (const DType type : types) {
        CHECK(left(gram_of_columns(type, 16, 1000000, 1)), "a long sum");
        CHECK(!left(gram_of_columns(type, 16, 300, 1)), "a short one");
    }
    CHECK(left(gram_of_columns(DType::f64, 30, 2000, 500)), "many long sums");
    // Six gigabytes of copies, which are made in pieces.
    CHECK(left(batched_product("L@dense", DType::f64, 100, 1500, 80000)), "any number of them");
    const Product large = products_of("L@dense", 100, 160, 120000);
    CHECK(left(large) && rounds(large), "which are rounded: %s", told(large).c_str());
}

void tiles() {
    const auto has = [](const Product& p, const char* words) {
        return told(p).find(words) != std::string::npos;
    };
    const Product few_rows = gram_of_columns(DType::bf16, 60, 5000, 90);
    CHECK(has(few_rows, "64 x 64"), "half of large tiles were padding: %s", told(few_rows).c_str());
    const Product both_along = batched_product("L@U", DType::f64, 160, 160, 1000);
    CHECK(has(both_along, "64 x 64, loaded by warps of their own"), "%s", told(both_along).c_str());
}

// Columns of a batch side by side, which may be many, beside one matrix.
void joined_columns() {
    Product p = batched_product("L@dense", DType::bf16, 264, 512, 128);
    p.a.batch_stride = 0;
    CHECK(cuda::choose(p, h100).joined, "%s", told(p).c_str());
}

int main() {
    rounding();
    ranges();
    long_ones();
    tiles();
    joined_columns();
    std::puts("choose_rounding: ok");
}
