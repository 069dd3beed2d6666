// Which products have small tiles whose operands go straight to registers, and how many warps share their sums.
#include "named_products.h"

const DType dtypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};

int warps(const Product& p, const cuda::Device& device = h100) {
    const Config c = cuda::choose(p, device);
    const bool chosen = c.method == Method::Fragments;
    CHECK(!chosen || !cuda::leaves_to_dense(p, device), "twice");
    return chosen ? c.split : 0;
}

void small_products() {
    for (const DType dtype : dtypes)
        for (const char* op : {"S@dense", "dense@S", "L@dense", "dense@U", "L@S", "S@S-packed"})
            for (const int64_t n : {2, 17, 64, 100}) {
                const Product p = batched_product(op, dtype, n, n, 1);
                CHECK(warps(p) >= 4, "%s of %d: %d", op, (int)n, warps(p));
                CHECK(warps(p, hopper) == 0 && warps(p, ada) == 0, "doubles are slow");
            }
    CHECK(cuda::explain(times_dense(DType::f64, 100, 1), h100) ==
              "operands straight to registers, tiles 16 x 16, sums shared by 8 warps",
          "%s", cuda::explain(times_dense(DType::f64, 100, 1), h100).c_str());
    CHECK(cuda::explain(times_dense(DType::f64, 16, 4096), h100) ==
              "operands straight to registers, tiles 16 x 16",
          "many, each by one warp");
    CHECK(warps(lower_product(DType::f64, 16)) == 0 && warps(lower_product(DType::c64, 16)) > 0,
          "two lower triangles have a kernel of their own");
}

void larger_ones() {
    CHECK(warps(lower_product(DType::f64, 512)) > 0 && warps(lower_product(DType::f64, 1024)) == 0,
          "float64");
    CHECK(warps(times_dense(DType::f64, 256, 1)) > 0 && warps(times_dense(DType::f64, 512, 1)) == 0,
          "float64, one triangle");
    CHECK(warps(lower_product(DType::bf16, 256)) > 0 && warps(lower_product(DType::bf16, 512)) == 0,
          "bfloat16");
    CHECK(
        warps(times_dense(DType::f32, 64, 64)) > 0 && warps(times_dense(DType::f32, 64, 4096)) == 0,
        "batches");
    Product p = lower_product(DType::f32, 450);
    CHECK(warps(p) > 0, "float32");
    p.tf32 = true;
    CHECK(warps(p) == 0, "TF32");
    p = times_columns(DType::f64, 128, 1);
    CHECK(cuda::choose(p, h100).method == Method::Vector, "one vector");
}

// Beside vectors other kernels share long sums among blocks, and read what is stored once.
void columns() {
    const auto method = [](DType dtype, Kind kind, int64_t n, int64_t m) {
        Product p = times_columns(dtype, n, m);
        p.a.kind = kind;
        const Config c = cuda::choose(p, h100);
        CHECK(cuda::leaves_to_dense(p, h100) == cuda::leaves_to_dense(p, hopper) ||
                  c.method == Method::Fragments,
              "what goes here is not left to dense torch");
        return c.method;
    };
    CHECK(method(DType::f64, Kind::Lower, 900, 16) == Method::Fragments &&
              method(DType::f64, Kind::Lower, 1100, 16) == Method::Strips,
          "float64");
    CHECK(method(DType::f32, Kind::Upper, 600, 4) == Method::Fragments &&
              method(DType::f32, Kind::Upper, 768, 4) == Method::Thin,
          "sums down columns");
    CHECK(method(DType::f64, Kind::Symmetric, 3072, 8) == Method::Fragments &&
              method(DType::f64, Kind::Symmetric, 3100, 8) == Method::Strips,
          "as far as was measured");
    CHECK(method(DType::c128, Kind::Lower, 3072, 64) == Method::Fragments, "complex128");
    CHECK(method(DType::bf16, Kind::Symmetric, 900, 4) == Method::Fragments &&
              method(DType::bf16, Kind::Symmetric, 1024, 4) == Method::Wide,
          "rows of columns that are not aligned");
}

// What is no product of whole matrices, and what the kernel cannot count.
void other_operands() {
    Product p = lower_product(DType::f64, 100);
    p.alpha = -1;
    p.beta = 1;
    CHECK(warps(p) > 0, "into what is there");
    p = times_columns(DType::f64, 100, 8);
    p.b.row_stride = int64_t{1} << 30;
    CHECK(warps(p) == 0, "rows far apart");
    cuda::force(10, -1, 2, -1, -1);
    CHECK(warps(lower_product(DType::bf16, 3000)) == 2, "forced");
    cuda::force(-1, 0, -1, -1, -1);
    CHECK(warps(lower_product(DType::f64, 100)) == 0, "tiles of another kernel");
    cuda::force(-1, -1, -1, -1, -1);
}

int main() {
    small_products();
    larger_ones();
    columns();
    other_operands();
    std::puts("choose_fragments: ok");
}
