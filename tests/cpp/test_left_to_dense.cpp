// Which problems on CUDA dense torch gets, which needs no GPU to tell.
#include "named_products.h"

// Dense torch gets what it does faster; what zeros spoil there is mended, in dense results.
void some_problems_are_left_to_dense_torch() {
    Product p = lower_product(DType::bf16, 1024);
    CHECK(!cuda::leaves_to_dense(p, hopper), "two triangles");
    alignas(16) static const char dense[16] = {};
    p.b = {dense, Kind::Dense, 1024, 1024, 1024, 1, 0};
    p.c = {nullptr, Kind::Dense, 1024, 0};
    CHECK(!cuda::leaves_to_dense(p, hopper) && cuda::leaves_to_dense(p, ampere),
          "a middle-sized product with a dense matrix");
    p.b.kind = Kind::Symmetric;
    CHECK(!cuda::leaves_to_dense(p, hopper) && cuda::by_images(cuda::choose(p, hopper)),
          "a triangle and a symmetric matrix");
    p.m = p.n = p.k = 2048;
    for (Operand* x : {&p.a, &p.b}) x->rows = x->cols = 2048;
    p.c.row_stride = 2048;
    CHECK(!cuda::leaves_to_dense(p, hopper) && cuda::by_images(cuda::choose(p, hopper)),
          "larger ones");
    CHECK(cuda::leaves_to_dense(p, ampere) && cuda::goes_on_unpacked(p, ampere) &&
              cuda::explain(p, ampere).find("symmetric operand unpacked, then unpacked") == 0,
          "without tile images");
    p.a.kind = Kind::Symmetric;
    CHECK(!cuda::goes_on_unpacked(p, hopper), "symmetric matrices");
    p.m = p.n = p.k = 8192;
    CHECK(cuda::leaves_to_dense(p, hopper), "symmetric matrices");
    p.dtype = DType::f32;
    CHECK(!cuda::leaves_to_dense(p, hopper), "float32");
    p.m = p.n = p.k = p.a.rows = p.a.cols = p.b.rows = p.b.cols = 512;
    CHECK(!cuda::leaves_to_dense(p, hopper) && cuda::by_images(cuda::choose(p, hopper)),
          "large enough for images");
    p.m = p.n = p.k = p.a.rows = p.a.cols = p.b.rows = p.b.cols = 256;
    CHECK(!cuda::leaves_to_dense(p, hopper) && cuda::mirrors(p.dtype, cuda::choose(p, hopper)),
          "small enough for tiles that mirror them");
    CHECK(cuda::leaves_to_dense(p, ampere), "where blocks cannot share sums");

    CHECK(!cuda::leaves_to_dense(dense_product(DType::bf16, 1024), hopper),
          "two triangles, a dense result");
    CHECK(cuda::choose(dense_product(DType::bf16, 768), hopper).method == Method::Engine, "images");
    CHECK(cuda::choose(dense_product(DType::bf16, 704), hopper).method == Method::Hopper,
          "the direct kernel");
    CHECK(cuda::leaves_to_dense(dense_product(DType::bf16, 1280), ampere),
          "neither of them elsewhere");

    const auto columns_are_left = [](int64_t n, int64_t m, const cuda::Device& device) {
        return cuda::leaves_to_dense(times_columns(DType::bf16, n, m), device);
    };
    CHECK(!columns_are_left(2048, 64, hopper) && !columns_are_left(1024, 256, hopper),
          "few columns, whose sums blocks share");
    CHECK(!columns_are_left(2560, 128, hopper) && !columns_are_left(1536, 256, hopper),
          "aligned, by the copy engine");
    CHECK(!columns_are_left(3072, 256, hopper) && !columns_are_left(768, 512, hopper),
          "by larger tiles");
    CHECK(!columns_are_left(3328, 256, hopper) && !columns_are_left(1024, 768, hopper) &&
              columns_are_left(3328, 256, ampere) && columns_are_left(1024, 768, ampere),
          "by images");
    CHECK(columns_are_left(2048, 64, ampere), "no clusters");

    const auto factor_is_left = [](DType dtype, int64_t n, int64_t batch) {
        return cuda::leaves_to_dense(Factor{dtype, n, batch, nullptr, 0, nullptr});
    };
    CHECK(!factor_is_left(DType::f32, 1024, 1) && !factor_is_left(DType::f64, 1024, 1), "factors");
    CHECK(factor_is_left(DType::c128, 512, 1) && !factor_is_left(DType::c64, 512, 1), "complex");
    CHECK(!factor_is_left(DType::c64, 2500, 1) && factor_is_left(DType::c64, 3000, 1), "large");
    CHECK(!factor_is_left(DType::c128, 512, 2), "a batch");
    CHECK(!factor_is_left(DType::c128, 66000, 1), "memory");
    Solve solve{};
    solve.dtype = DType::f32;
    solve.n = 4096;
    solve.m = solve.batch = 1;
    solve.x_kind = Kind::Dense;
    CHECK(cuda::leaves_to_dense(solve), "one right-hand side");
    solve.m = 4096;
    CHECK(!cuda::leaves_to_dense(solve), "many right-hand sides");
    solve.x_kind = Kind::Lower;
    CHECK(!cuda::leaves_to_dense(solve), "an inverse");
    solve.n = solve.m = 512;
    solve.dtype = DType::f64;
    CHECK(!cuda::leaves_to_dense(solve), "float64");
    solve.dtype = DType::c64;
    CHECK(!cuda::leaves_to_dense(solve), "a complex inverse");
    solve.x_kind = Kind::Dense;
    CHECK(!cuda::leaves_to_dense(solve), "complex");
    solve.n = solve.m = 4096;
    CHECK(cuda::leaves_to_dense(solve), "larger");
    solve.dtype = DType::c128;
    solve.n = solve.m = 2048;
    CHECK(cuda::leaves_to_dense(solve), "complex128");
    solve.m = 64;
    CHECK(!cuda::leaves_to_dense(solve), "few right-hand sides");
}

// Chips for data centers without the engine multiply float32 slowly beside TF32.
void tf32_is_left_to_dense_torch_without_the_engine() {
    const auto left = [](Product p, const cuda::Device& device) {
        p.tf32 = true;
        return cuda::leaves_to_dense(p, device);
    };
    for (int64_t n : {2300, 4096, 8192}) {
        CHECK(left(times_dense(DType::f32, n, 1), ampere), "triangle times dense, %d", int(n));
        CHECK(left(lower_product(DType::f32, n), ampere), "two triangles, %d", int(n));
        CHECK(left(gram(DType::f32, n, 1), ampere), "dense matrices, %d", int(n));
        CHECK(!left(times_dense(DType::f32, n, 1), hopper), "the engine, %d", int(n));
        CHECK(!left(times_dense(DType::f32, n, 1), ada), "as fast in float32, %d", int(n));
    }
    Product p = times_dense(DType::f32, 4096, 1);
    CHECK(!cuda::leaves_to_dense(p, ampere), "not in TF32");
}

// Where a few tiles leave most of the device idle.
void narrow_products_are_left_to_dense_torch() {
    static const char dense = 0;
    const auto left = [](DType dtype, int64_t n, int64_t vectors, int64_t batch = 1,
                         const cuda::Device& device = hopper) {
        Product p = lower_product(dtype, n, batch);
        p.b = {&dense, Kind::Dense, n, vectors, vectors, 1, 0};
        p.c = {nullptr, Kind::Dense, vectors, 0};
        p.n = vectors;
        return cuda::leaves_to_dense(p, device);
    };
    const cuda::Device alone{108, false};
    CHECK(left(DType::f64, 1024, 128, 1, alone), "float64");
    CHECK(left(DType::f64, 1024, 300, 1, alone) && !left(DType::f64, 1200, 200, 1, alone),
          "tiles that are not full");
    CHECK(!left(DType::f64, 1024, 320, 1, alone) && !left(DType::f64, 1200, 300, 1, alone),
          "full ones, or large");
    CHECK(left(DType::f64, 1536, 32, 1, alone), "where there are no strips");
    CHECK(left(DType::f64, 256, 256, 1, alone) && left(DType::f64, 160, 160, 64, alone),
          "small, batches");
    CHECK(!left(DType::f64, 160, 160, 64), "batches where blocks share sums");
    for (const int64_t n : {256, 1024, 1536})
        for (const int64_t vectors : {32, 128, 256, 300})
            CHECK(!left(DType::f64, n, vectors) && !left(DType::c64, n, vectors + 130),
                  "where blocks share sums: %d, %d", (int)n, (int)vectors);
    CHECK(left(DType::c64, 1000, 64), "complex, of middle size");
    CHECK(!left(DType::f64, 4096, 32) && !left(DType::f64, 512, 64), "other sizes");
    CHECK(!left(DType::f64, 1536, 32, 2) && !left(DType::f32, 1536, 32), "batches, float32");
}

// Dense torch is slow in 16-bit types and TF32 where rows do not begin at multiples of 16 bytes.
void rows_that_are_not_aligned_stay_here() {
    const auto left = [](Product p, bool tf32 = false) {
        p.tf32 = tf32;
        return cuda::leaves_to_dense(p, hopper);
    };
    CHECK(!left(times_dense(DType::bf16, 1024, 1)), "aligned, by images");
    CHECK(!left(times_dense(DType::bf16, 1020, 1)) && !left(times_dense(DType::f16, 385, 8)),
          "not aligned");
    for (const int64_t n : {500, 502, 700, 1000})
        CHECK(!left(times_dense(DType::f32, n, 1), true), "TF32, %d", (int)n);
    CHECK(left(gram(DType::bf16, 768, 1)) && !left(gram(DType::bf16, 769, 1)), "dense operands");
    CHECK(!left(times_dense(DType::f64, 257, 1)), "float64");

    const auto symmetric = [](DType dtype, int64_t n) {
        Product p = times_dense(dtype, n, 1);
        p.a.kind = Kind::Symmetric;
        return p;
    };
    CHECK(left(symmetric(DType::bf16, 2048)) && !left(symmetric(DType::bf16, 2049)), "symmetric");
    CHECK(!left(symmetric(DType::bf16, 385)) && left(symmetric(DType::bf16, 512)),
          "symmetric, small tiles mirror it");
    Product squared = symmetric(DType::bf16, 2049);
    squared.b.kind = Kind::Symmetric;
    CHECK(!left(squared), "two symmetric matrices");
    for (const int64_t n : {512, 560, 640})
        CHECK(!left(symmetric(DType::f32, n), true), "symmetric, TF32, %d", (int)n);
    Product narrow = times_dense(DType::bf16, 1024, 1);
    narrow.n = narrow.b.cols = narrow.b.row_stride = narrow.c.row_stride = 516;
    CHECK(!left(narrow), "rows of the dense operand");
}

// Where dense torch has tensor cores for complex numbers, and where half of a product is enough.
void complex_products_and_squares() {
    const auto left = [](const Product& p) { return cuda::leaves_to_dense(p, hopper); };
    CHECK(cuda::leaves_to_dense(times_dense(DType::c128, 160, 32), h100) &&
              !cuda::leaves_to_dense(times_dense(DType::c128, 160, 8), h100),
          "batches of 160");
    CHECK(left(times_dense(DType::c128, 512, 1)) && !left(times_dense(DType::c64, 512, 1)), "512");
    CHECK(!left(times_dense(DType::c128, 32, 1)) && !left(times_dense(DType::c64, 2048, 1)),
          "small, large");
    CHECK(left(gram(DType::c128, 2048, 1)) && !left(gram(DType::c64, 2048, 1)), "dense operands");
    Product thin = gram(DType::c128, 20000, 1);
    thin.k = thin.a.cols = thin.b.rows = 10;
    CHECK(!left(thin), "short sums");

    const auto transposes = [](DType dtype, int64_t n, int64_t batch = 1) {
        Product p = lower_product(dtype, n, batch);
        p.b = p.a;
        p.b.kind = Kind::Upper;
        p.tf32 = dtype == DType::f32;
        return p;
    };
    CHECK(left(transposes(DType::c128, 256)) && !left(transposes(DType::f32, 768)), "L Lᵀ");
    CHECK(cuda::leaves_to_dense(transposes(DType::f32, 256, 8), ampere) &&
              !left(transposes(DType::f32, 256, 8)),
          "batches of them, where warpgroups multiply no small tiles");
    CHECK(!left(transposes(DType::c128, 64)) && !left(transposes(DType::c64, 256)), "others");
    Product two = transposes(DType::c128, 256);
    two.b.data = nullptr;
    CHECK(!left(two), "two triangles");
    CHECK(cuda::explain(transposes(DType::c128, 256), hopper).find("unpacked, then dense") == 0,
          "told");

    // Of a square of a symmetric matrix one half is enough too: its copy is multiplied here, or its image.
    const auto square = [](DType dtype) {
        Product p = lower_product(dtype, 4096);
        p.a.kind = p.b.kind = Kind::Symmetric;
        return p;
    };
    CHECK(left(square(DType::f64)) && cuda::goes_on_unpacked(square(DType::f64), hopper), "copied");
    CHECK(cuda::explain(square(DType::f64), hopper).find("symmetric operand unpacked, then ") == 0,
          "told");
    CHECK(!left(square(DType::bf16)), "without a copy");
    Product dense = square(DType::bf16);
    dense.c.kind = Kind::Dense;
    CHECK(left(dense) && !cuda::goes_on_unpacked(dense, hopper), "a dense result");
}

// On Hopper small tiles mirror symmetric operands, where there are few multiplications.
void small_symmetric_products_stay_here() {
    const auto mirrored = [](DType dtype, const char* op, int64_t n, int64_t m, int64_t batch = 1) {
        const Product p = batched_product(op, dtype, n, m, batch);
        const Config c = cuda::choose(p, hopper);
        const bool here = !cuda::leaves_to_dense(p, hopper) && !cuda::by_images(c);
        CHECK(!here || cuda::mirrors(dtype, c) || c.method == Method::SharedImages,
              "by tiles that do, or images");
        CHECK(cuda::leaves_to_dense(p, ampere), "blocks cannot share sums there");
        return here;
    };
    CHECK(mirrored(DType::f32, "S@dense", 384, 384) && !mirrored(DType::f32, "S@dense", 512, 512),
          "float32");
    CHECK(mirrored(DType::f32, "S@dense", 640, 256) && !mirrored(DType::f32, "S@dense", 768, 256),
          "some columns");
    CHECK(mirrored(DType::f64, "S@dense", 192, 192) && !mirrored(DType::f64, "S@dense", 256, 256),
          "float64");
    CHECK(mirrored(DType::f64, "S@dense", 64, 64, 1024), "many of one tile");
    CHECK(!mirrored(DType::f64, "S@dense", 128, 128, 8), "of four");
    CHECK(mirrored(DType::f64, "L@S", 640, 640) && !mirrored(DType::f64, "L@S", 1024, 1024),
          "beside a triangle");
    CHECK(mirrored(DType::f32, "S@S", 448, 448) && !mirrored(DType::f32, "S@S", 512, 512),
          "two of them");
    CHECK(mirrored(DType::c64, "S@dense", 192, 192) && !mirrored(DType::c64, "S@dense", 256, 256),
          "complex64");
    CHECK(mirrored(DType::c128, "S@dense", 100, 100) && !mirrored(DType::c128, "S@dense", 128, 128),
          "complex128");
    CHECK(mirrored(DType::bf16, "S@dense", 384, 384) && !mirrored(DType::bf16, "S@dense", 448, 448),
          "bfloat16");
    CHECK(mirrored(DType::bf16, "S@dense", 1536, 64) && !mirrored(DType::bf16, "S@dense", 64, 4),
          "columns of bfloat16, and less than a word of them");
    CHECK(mirrored(DType::bf16, "S@dense", 1025, 256), "rows that are not aligned");
    CHECK(mirrored(DType::bf16, "S@dense", 32, 32, 512) &&
              mirrored(DType::bf16, "S@dense", 128, 16, 128),
          "many of bfloat16");
    CHECK(cuda::small_side(batched_product("S@dense", DType::bf16, 32, 32, 1024), hopper) == 32,
          "one block or warp has each of more");
}

// Without room for copies, those of 16 bits would be two triangles one after the other, and their sums rounded between.
void sums_of_symmetric_matrices_of_16_bits_are_rounded_once() {
    for (const char* op : {"S@dense", "dense@S", "S@S", "S@S-packed", "L@S", "S@U-packed"})
        for (const int64_t n : {100, 512, 1000, 1500, 4096, 8191, 16384, 50000})
            for (const int64_t m : {2, 17, 100, 301, 600, 1000})
                for (const int64_t batch : {1, 3, 256, 10000})
                    for (const cuda::Device& device : {hopper, ampere, ada}) {
                        const Product p = batched_product(op, DType::f16, n, m, batch);
                        CHECK(cuda::explain(p, device).find("triangle by triangle") ==
                                  std::string::npos,
                              "%s, %d x %d, %d", op, (int)n, (int)m, (int)batch);
                    }
}

// Whatever memory the copies of all of a batch would take.
void batches_are_left_in_pieces() {
    Product p = batched_product("S@dense", DType::f64, 4096, 700, 256);
    CHECK(cuda::leaves_to_dense(p, hopper), "a batch");
    CHECK(cuda::copies(p).at_once() == 32, "matrices of 128 MiB");
    p.a.batch_stride = 0;
    CHECK(cuda::copies(p).at_once() == INT64_MAX, "one for the whole batch");
    p = batched_product("S@S-packed", DType::f64, 4096, 4096, 256);
    CHECK(cuda::copies(p).at_once() == 10, "two, and the result");
    p = batched_product("L@S", DType::f64, 4096, 4096, 256);
    CHECK(cuda::copies(p).at_once() == 32, "the symmetric one alone");
    p = batched_product("S@dense", DType::f16, 100000, 600, 2);
    CHECK(cuda::copies(p).at_once() == 1, "each of which is larger than that");
}

int main() {
    sums_of_symmetric_matrices_of_16_bits_are_rounded_once();
    batches_are_left_in_pieces();
    small_symmetric_products_stay_here();
    some_problems_are_left_to_dense_torch();
    tf32_is_left_to_dense_torch_without_the_engine();
    narrow_products_are_left_to_dense_torch();
    rows_that_are_not_aligned_stay_here();
    complex_products_and_squares();
    std::puts("left_to_dense: ok");
}
