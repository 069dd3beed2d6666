// The choice of a CUDA kernel for products with vectors, which needs no GPU.
#include "cuda/vector_product.h"
#include "named_products.h"

// A hundred vectors or so of 16-bit elements have a kernel of their own, where there is memory for what it adds up.
void a_hundred_vectors() {
    alignas(16) static const char dense[16] = {};
    Product p{};
    const auto wide = [&](DType dtype, Kind kind, int64_t n, int64_t vectors, int64_t batch = 1) {
        p = lower_product(dtype, n, batch);
        p.a.kind = kind;
        p.b = {dense, Kind::Dense, n, vectors, vectors, 1, n * vectors};
        p.c = {nullptr, Kind::Dense, vectors, n * vectors};
        p.n = vectors;
        const bool is_wide = cuda::choose(p, hopper).method == Method::Wide;
        CHECK(!is_wide || !cuda::leaves_to_dense(p, hopper), "not left to dense torch");
        return is_wide;
    };
    // The engine has no kernel for halves of tiles that reads half of a symmetric matrix.
    const auto symmetric_by_small_tiles = [](const Product& p) {
        const Config config = cuda::choose(p, hopper);
        return !cuda::leaves_to_dense(p, hopper) && config.method == Method::Engine &&
               config.tile == TileSize::Small &&
               cuda::engine_layout(p, config, hopper.multiprocessors).a.run.turns;
    };
    cuda::Device small = hopper;
    small.scratch = int64_t{50} << 20;
    CHECK(wide(DType::bf16, Kind::Symmetric, 8192, 100), "symmetric");
    CHECK(cuda::explain(p, hopper) == "128 vectors at once, two passes over the triangle",
          "in words");
    CHECK(wide(DType::bf16, Kind::Lower, 8192, 64), "a triangle");
    CHECK(cuda::explain(p, hopper) == "64 vectors at once", "in words");
    CHECK(cuda::choose(p, hopper, false).method != Method::Wide, "without memory");
    CHECK(cuda::choose(p, cuda::Device{108, false}).method != Method::Wide, "another chip");
    cuda::Device little = hopper;
    little.scratch = 1000;
    CHECK(cuda::choose(p, little).method != Method::Wide, "little memory");
    p.b.data = dense + 2;
    CHECK(cuda::choose(p, hopper).method == Method::Wide, "rows that are not aligned");
    CHECK(wide(DType::f16, Kind::Upper, 6000, 256) && cuda::wide_vectors(p) == 256, "256 at once");
    CHECK(wide(DType::f16, Kind::Upper, 5000, 193) && cuda::wide_vectors(p) == 128,
          "in two groups");
    CHECK(wide(DType::bf16, Kind::Lower, 1280, 12) && cuda::wide_vectors(p) == 16, "few");
    CHECK(wide(DType::bf16, Kind::Upper, 1024, 4) && !wide(DType::bf16, Kind::Lower, 1024, 4),
          "few thin sums along rows are sooner");
    CHECK(!wide(DType::bf16, Kind::Lower, 8192, 1024), "many vectors");
    CHECK(!wide(DType::bf16, Kind::Lower, 2048, 64), "small");
    CHECK(!wide(DType::bf16, Kind::Symmetric, 8192, 24), "symmetric ones of few go by strips");
    CHECK(wide(DType::bf16, Kind::Symmetric, 1024, 16), "but small ones do not");
    CHECK(!wide(DType::bf16, Kind::Symmetric, 3000, 256) && cuda::leaves_to_dense(p, hopper),
          "middle-sized ones beside more vectors are unpacked");
    CHECK(wide(DType::bf16, Kind::Symmetric, 3001, 256), "unless dense torch is slow with them");
    CHECK(!wide(DType::bf16, Kind::Symmetric, 8192, 256) && symmetric_by_small_tiles(p),
          "beside many vectors an image of half of it");
    CHECK(cuda::choose(p, small).method == Method::Wide, "where that has room");
    CHECK(wide(DType::bf16, Kind::Symmetric, 8193, 256), "whose rows are aligned");
    CHECK(!wide(DType::bf16, Kind::Symmetric, 8192, 1024) && !cuda::leaves_to_dense(p, hopper) &&
              !wide(DType::bf16, Kind::Symmetric, 8192, 1280) && cuda::leaves_to_dense(p, hopper),
          "up to an eighth of the order");
    CHECK(!wide(DType::bf16, Kind::Symmetric, 4096, 512) && symmetric_by_small_tiles(p),
          "as many as make one round");
    CHECK(!wide(DType::f32, Kind::Symmetric, 4096, 256) && symmetric_by_small_tiles(p),
          "float32 likewise");
    CHECK(wide(DType::f32, Kind::Symmetric, 8192, 64), "but not beside fewer");
    p.tf32 = true;
    CHECK(symmetric_by_small_tiles(p), "unless it may be rounded to TF32");
    CHECK(wide(DType::bf16, Kind::Lower, 1024, 64, 16), "a batch");
    CHECK(!wide(DType::bf16, Kind::Lower, 256, 64, 16), "of small ones");
    wide(DType::bf16, Kind::Lower, 1024, 64, 16);
    p.a.batch_stride = 0;
    CHECK(cuda::choose(p, hopper).method != Method::Wide, "one triangle for all");
}

// A packed matrix, or each of a batch, times so many columns of its own.
Product packed_times_columns(DType dtype, Kind kind, int64_t n, int64_t vectors, int64_t batch) {
    Product p = times_columns(dtype, n, vectors);
    p.a.kind = kind;
    p.batch = batch;
    p.a.batch_stride = n * (n + 1) / 2;
    return p;
}

// The same of float64: symmetric matrices, as far as groups of 128 vectors are full.
void a_hundred_vectors_of_double() {
    const auto wide = [](Kind kind, int64_t n, int64_t vectors, int64_t batch = 1) {
        const Product p = packed_times_columns(DType::f64, kind, n, vectors, batch);
        const bool is_wide = cuda::choose(p, hopper).method == Method::Wide;
        CHECK(
            !is_wide || (!cuda::leaves_to_dense(p, hopper) && !cuda::goes_by_triangles(p, hopper)),
            "not left to others");
        return is_wide;
    };
    CHECK(wide(Kind::Symmetric, 1100, 64) && !wide(Kind::Symmetric, 1000, 64), "64");
    CHECK(!wide(Kind::Symmetric, 8192, 32), "few go by strips");
    CHECK(!wide(Kind::Lower, 8192, 64) && !wide(Kind::Upper, 8192, 128), "triangles");
    CHECK(wide(Kind::Symmetric, 2200, 65) && !wide(Kind::Symmetric, 2100, 128), "128");
    CHECK(wide(Kind::Symmetric, 4096, 256) && !wide(Kind::Symmetric, 4096, 192), "two groups");
    CHECK(wide(Kind::Symmetric, 4096, 384) && !wide(Kind::Symmetric, 4096, 512), "three");
    CHECK(wide(Kind::Symmetric, 800, 64, 8) && !wide(Kind::Symmetric, 800, 64, 2) &&
              wide(Kind::Symmetric, 1300, 128, 2),
          "batches");
    Product p = packed_times_columns(DType::f64, Kind::Symmetric, 2048, 64, 4);
    p.a.batch_stride = 0;
    CHECK(cuda::choose(p, hopper).method != Method::Wide, "one matrix for all");
}

// The same of float32.
void a_hundred_vectors_of_float() {
    const auto method = [](Kind kind, int64_t n, int64_t vectors, int64_t batch = 1) {
        const Product p = packed_times_columns(DType::f32, kind, n, vectors, batch);
        const Method chosen = cuda::choose(p, hopper).method;
        if (chosen == Method::Wide) CHECK(cuda::wide_vectors(p) <= 128, "no more at once");
        return chosen;
    };
    CHECK(method(Kind::Lower, 8192, 64) == Method::Wide, "a triangle");
    CHECK(method(Kind::Upper, 2560, 24) == Method::Wide &&
              method(Kind::Upper, 2560, 16) == Method::Strips &&
              method(Kind::Upper, 2000, 16) == Method::Thin,
          "fewer");
    CHECK(method(Kind::Lower, 4096, 4) != Method::Wide &&
              method(Kind::Lower, 4096, 5) == Method::Wide,
          "few");
    CHECK(method(Kind::Lower, 4096, 384) == Method::Wide &&
              method(Kind::Lower, 4096, 385) == Method::Engine,
          "many");
    CHECK(method(Kind::Symmetric, 8192, 16) == Method::Strips &&
              method(Kind::Symmetric, 8192, 17) == Method::Wide,
          "few of a symmetric matrix, which strips load once");
    CHECK(method(Kind::Symmetric, 3000, 256) == Method::Wide &&
              method(Kind::Symmetric, 4096, 256) == Method::Engine,
          "many");
    CHECK(method(Kind::Lower, 1024, 64, 32) == Method::Wide &&
              method(Kind::Lower, 512, 64, 32) != Method::Wide,
          "batches");
    Product p = times_columns(DType::f32, 8192, 64);
    CHECK(cuda::explain(p, hopper) == "64 vectors at once", "in words");
    CHECK(cuda::choose(p, cuda::Device{108, false}).method != Method::Wide, "another chip");
}

// How a packed matrix is multiplied by one vector, and what explain says of it.
void one_vector() {
    using Way = cuda::MvChoice::Way;
    const auto product = [](DType dtype, Kind kind, int64_t n, int64_t batch) {
        Product p = times_columns(dtype, n, 1);
        p.a.kind = kind;
        p.batch = batch;
        return p;
    };
    const auto way = [&](DType dtype, Kind kind, int64_t n, int64_t batch = 1,
                         const cuda::Device& device = h100) {
        const Product p = product(dtype, kind, n, batch);
        CHECK(!cuda::leaves_to_dense(p, device), "%d of %d", (int)batch, (int)n);
        return cuda::choose_mv(p, device);
    };
    CHECK(way(DType::f32, Kind::Lower, 64).way == Way::Rows, "small");
    CHECK(way(DType::f32, Kind::Lower, 1024).sharers == 8, "long rows");
    CHECK(way(DType::f32, Kind::Lower, 300, 20).way == Way::Groups, "some of 300");
    CHECK(way(DType::f32, Kind::Lower, 300, 100).way == Way::Held, "many of 300");
    CHECK(way(DType::f32, Kind::Lower, 300, 100, ampere).way == Way::Rows, "without bulk copies");
    CHECK(way(DType::bf16, Kind::Lower, 300, 50, ampere).way == Way::Rows, "some of 16 bits");
    CHECK(way(DType::f32, Kind::Lower, 400, 100).way == Way::Rows, "more than a block can hold");
    CHECK(way(DType::bf16, Kind::Lower, 400, 100).way == Way::Held, "of 16 bits it can");
    CHECK(way(DType::f32, Kind::Lower, 100, int64_t{1} << 26, ampere).way == Way::Groups,
          "too many");
    CHECK(way(DType::f32, Kind::Upper, 100).group == 8, "few columns");
    CHECK(way(DType::f32, Kind::Upper, 8192).group == 32, "many columns");
    CHECK(way(DType::f32, Kind::Upper, 300, 300).way == Way::Held, "columns of many");
    CHECK(way(DType::f32, Kind::Upper, 300, 300, ampere).way == Way::Columns, "... on Ampere");
    CHECK(way(DType::f64, Kind::Symmetric, 128).group == 4, "a small symmetric one");
    CHECK(way(DType::bf16, Kind::Symmetric, 60).way == Way::Held, "... of 16 bits");
    CHECK(way(DType::f32, Kind::Symmetric, 30, 100).way == Way::Block, "many small ones");
    CHECK(way(DType::f32, Kind::Symmetric, 250, 100).way == Way::Held, "many of 250");
    CHECK(way(DType::f32, Kind::Symmetric, 250, 100, ampere).way == Way::Block, "... on Ampere");
    CHECK(way(DType::f32, Kind::Symmetric, 400, 100).way == Way::Parts, "many of 400");
    CHECK(way(DType::f32, Kind::Symmetric, 8192).way == Way::Parts, "a large one");
    Product p = product(DType::f32, Kind::Symmetric, 8192, 1);
    CHECK(cuda::choose_mv(p, h100, false).way == Way::Groups, "without scratch memory");
    CHECK(
        cuda::choose_mv(product(DType::f32, Kind::Symmetric, 400, 70000), h100).way == Way::Groups,
        "too many for a grid");
    std::swap(p.a, p.b);
    p.m = 1;
    p.n = p.k;
    CHECK(cuda::choose_mv(p, h100).way == Way::Parts, "from the left");

    const auto says = [&](Kind kind, int64_t n, const char* text, int64_t batch = 1) {
        const std::string words = cuda::explain(product(DType::f32, kind, n, batch), h100);
        CHECK(words.find(text) != std::string::npos, "%s", words.c_str());
    };
    says(Kind::Symmetric, 8192, "one pass");
    says(Kind::Symmetric, 512, "two passes over the triangle, 8 elements a block");
    says(Kind::Lower, 1024, "one pass over the triangle, 4 elements a block, sums shared by 8");
    says(Kind::Lower, 250, "in the shared memory of a block, 2 threads a row", 100);
}

// A few vectors have a kernel that reads the packed operand once, or a symmetric one twice.
void few_vectors() {
    // More of them have another kernel, if the copy engine can read them: these are not aligned.
    alignas(16) static const char memory[16] = {};
    static const char& dense = memory[2];
    const auto product = [](DType dtype, Kind kind, int64_t n, int64_t vectors, int64_t batch = 1) {
        Product p = lower_product(dtype, n);
        p.a.kind = kind;
        p.b = {&dense, Kind::Dense, n, vectors, vectors, 1, 0};
        p.c = {nullptr, Kind::Dense, vectors, 0};
        p.n = vectors;
        p.batch = batch;
        return p;
    };
    const auto thin = [](const Product& p) {
        return cuda::choose(p, hopper).method == Method::Thin && !cuda::leaves_to_dense(p, hopper);
    };
    CHECK(thin(product(DType::f32, Kind::Lower, 8192, 4)), "float32");
    CHECK(thin(product(DType::bf16, Kind::Lower, 1536, 4)), "bfloat16");
    CHECK(!thin(product(DType::bf16, Kind::Lower, 1536, 5)), "more vectors");
    CHECK(!thin(product(DType::c64, Kind::Lower, 8192, 16)), "complex");
    CHECK(thin(product(DType::f64, Kind::Lower, 64, 64)), "small");
    CHECK(!thin(product(DType::f64, Kind::Lower, 64, 64, 1000)), "many small ones");
    CHECK(thin(product(DType::f64, Kind::Symmetric, 2000, 2)), "symmetric");
    CHECK(!thin(product(DType::bf16, Kind::Symmetric, 4096, 8)), "sums rounded twice");
    CHECK(!thin(product(DType::bf16, Kind::Lower, 1024, 16)), "small tiles, whose sums are shared");
    CHECK(cuda::choose(product(DType::bf16, Kind::Lower, 1024, 16), ampere).method == Method::Thin,
          "no clusters");

    Product transposed = product(DType::f32, Kind::Lower, 4096, 4);
    std::swap(transposed.a, transposed.b);
    std::swap(transposed.m, transposed.n);
    transposed.a = {&dense, Kind::Dense, 4, 4096, 4096, 1, 0};
    CHECK(thin(transposed), "rows times a triangle");
    CHECK(cuda::explain(transposed, hopper).find("a few vectors") == 0, "explain");
    const Product symmetric = product(DType::f64, Kind::Symmetric, 2000, 2);
    CHECK(cuda::explain(symmetric, hopper).find("two passes") != std::string::npos, "explain");
}

// More of them go by strips on Hopper, where there is memory for what they add up.
void some_vectors() {
    static const char dense = 0;
    Product p{};
    const auto strips = [&](DType dtype, Kind kind, int64_t n, int64_t vectors, int64_t batch = 1) {
        p = lower_product(dtype, n, batch);
        p.a.kind = kind;
        p.b = {&dense, Kind::Dense, n, vectors, vectors, 1, n * vectors};
        p.c = {nullptr, Kind::Dense, vectors, n * vectors};
        p.n = vectors;
        return cuda::choose(p, hopper).method == Method::Strips &&
               !cuda::leaves_to_dense(p, hopper);
    };
    CHECK(strips(DType::f64, Kind::Symmetric, 8192, 16), "symmetric");
    CHECK(cuda::explain(p, hopper) == "strips of the triangle, 16 vectors at once", "in words");
    CHECK(cuda::choose(p, hopper, false).method == Method::Thin, "without memory");
    CHECK(cuda::choose(p, cuda::Device{108, false}).method == Method::Thin, "another chip");
    CHECK(strips(DType::f32, Kind::Lower, 2048, 16) && !strips(DType::f32, Kind::Lower, 2048, 17) &&
              !strips(DType::f32, Kind::Lower, 4096, 16),
          "float32, but for more and larger ones");
    CHECK(strips(DType::f64, Kind::Upper, 8192, 32) && !strips(DType::f64, Kind::Upper, 8192, 33),
          "more of float64 have tiles");
    CHECK(strips(DType::f32, Kind::Symmetric, 2304, 8) &&
              !strips(DType::f32, Kind::Symmetric, 1600, 8),
          "smaller ones have tiles");
    CHECK(!strips(DType::bf16, Kind::Lower, 8192, 16), "a triangle of bfloat16");
    CHECK(strips(DType::bf16, Kind::Symmetric, 4096, 32) &&
              !strips(DType::bf16, Kind::Symmetric, 4096, 33) &&
              !strips(DType::bf16, Kind::Symmetric, 3072, 16),
          "symmetric, bfloat16");
    CHECK(strips(DType::bf16, Kind::Symmetric, 2048, 16, 16), "a batch of bfloat16");
    CHECK(strips(DType::f64, Kind::Symmetric, 1024, 16, 64), "a batch");
    CHECK(!strips(DType::f64, Kind::Symmetric, 128, 16, 64), "small ones");
    CHECK(strips(DType::f32, Kind::Symmetric, 768, 8, 8) &&
              !strips(DType::f32, Kind::Symmetric, 1024, 8, 32),
          "batches that are not large either");
    cuda::Device little = hopper;
    little.scratch = 1000;
    strips(DType::f64, Kind::Symmetric, 8192, 16);
    CHECK(cuda::choose(p, little).method != Method::Strips, "little memory");
}

// Symmetric matrices of float64 beside more of them are two triangles, where unpacking them would take as long as half of
// the product does.
void by_two_triangles() {
    const auto words = [](DType dtype, const char* op, int64_t n, int64_t m, int64_t batch = 1) {
        const Product p = batched_product(op, dtype, n, m, batch);
        CHECK(cuda::leaves_to_dense(p, hopper) != cuda::goes_by_triangles(p, hopper),
              "one of both");
        return cuda::explain(p, hopper);
    };
    const std::string dense = "unpacked, then dense torch",
                      two = "two triangles one after the other, direct, tiles ";
    CHECK(words(DType::f64, "S@dense", 4096, 160).find(two) == 0, "some vectors");
    CHECK(words(DType::f64, "dense@S", 8192, 600, 4).find(two + "128") == 0, "more, and a batch");
    CHECK(words(DType::f64, "S@dense", 3072, 160) == dense, "too small");
    CHECK(words(DType::f64, "S@dense", 4096, 1024) == dense, "much to multiply");
    Product shared = batched_product("S@dense", DType::f64, 4096, 160, 4);
    shared.a.batch_stride = 0;
    CHECK(!cuda::goes_by_triangles(shared, hopper), "one matrix for a batch, copied once");
    const std::string halves = words(DType::f64, "S@dense", 6144, 160);
    CHECK(halves.find("; then ") == std::string::npos, "both halves alike: %s", halves.c_str());
    CHECK(!cuda::goes_by_triangles(batched_product("S@dense", DType::f64, 4096, 160, 1), ampere),
          "another chip");
}

// The columns of a batch that shares one matrix become rows where the matrix is worth more than they are.
void columns_are_turned() {
    const auto turns = [](DType dtype, Kind kind, int64_t n, int64_t cols, int64_t count) {
        return cuda::turns({dtype, kind, n, cols, count, false}, h100);
    };
    CHECK(turns(DType::f32, Kind::Lower, 1024, 1, 64), "vectors");
    CHECK(turns(DType::f64, Kind::Upper, 1024, 16, 64), "few columns");
    CHECK(!turns(DType::f64, Kind::Lower, 1024, 64, 64), "too many columns");
    CHECK(turns(DType::f64, Kind::Symmetric, 1024, 64, 64), "of a matrix that is read twice");
    CHECK(!turns(DType::f32, Kind::Lower, 256, 1, 16), "little to spare");
    CHECK(turns(DType::bf16, Kind::Lower, 1024, 16, 64), "few columns of 16 bits");
    CHECK(!turns(DType::bf16, Kind::Symmetric, 1024, 32, 64), "what dense torch does sooner");
    CHECK(!turns(DType::f32, Kind::Lower, 8192, 1, 1), "one matrix");
}

// Matrices that shared memory holds come in pieces that are blocks of rows and make up all of them.
void held_layouts() {
    for (const DType dtype : {DType::bf16, DType::f32, DType::f64, DType::c128})
        for (int n = 1; n < 520; ++n)
            for (const int shares : {1, 2, 4}) {
                const Product p = times_columns(dtype, n, 1);
                if (!cuda::mv_held_can(p, h100, 1, shares)) continue;
                const cuda::MvHeldLayout layout = cuda::mv_held_layout(p, 1, shares);
                const int* ends = layout.ends;
                for (int x = 0; x + 1 < layout.pieces; ++x)
                    CHECK(ends[x] <= ends[x + 1] && (ends[x] % layout.BLOCK == 0 || ends[x] == n),
                          "%d", n);
                CHECK(ends[layout.pieces - 1] == n, "%d", n);
                CHECK(layout.lines() >= n && layout.lines() < n + layout.BLOCK, "%d", n);
            }
    CHECK(!cuda::mv_held_can(times_columns(DType::f32, 340, 1), h100, 1, 1), "too large");
    CHECK(!cuda::mv_held_can(times_columns(DType::f32, 100, 1), h100, 9, 1), "too many threads");
    CHECK(!cuda::mv_held_can(times_columns(DType::f32, 100, 1), ampere, 1, 1), "no bulk copies");
}

// A product of a packed matrix and vectors is one of that and columns, from either side.
void sides_of_a_product() {
    Product p = times_columns(DType::f32, 100, 7);
    p.b.row_stride = 9, p.b.col_stride = 2, p.c.row_stride = 8;
    const auto reads = [&](const cuda::VectorProduct& sides, int64_t step, int64_t next) {
        CHECK(sides.packed.kind == Kind::Lower && sides.vectors.kind == Kind::Dense,
              "which is which");
        CHECK(sides.x_step == step && sides.x_next == next, "what is read");
    };
    const cuda::VectorProduct columns(p);
    reads(columns, 9, 2);
    CHECK(columns.left && columns.kind == Kind::Lower, "T x");
    CHECK(columns.y_step == 8 && columns.y_next == 1, "columns of the result");
    std::swap(p.a, p.b);
    const cuda::VectorProduct rows(p);
    reads(rows, 2, 9);
    CHECK(!rows.left && rows.kind == Kind::Upper, "x T");
    CHECK(rows.y_step == 1 && rows.y_next == 8, "rows of the result");
}

int main() {
    a_hundred_vectors();
    a_hundred_vectors_of_float();
    a_hundred_vectors_of_double();
    some_vectors();
    one_vector();
    held_layouts();
    sides_of_a_product();
    by_two_triangles();
    columns_are_turned();
    few_vectors();
    std::puts("choose_vectors: ok");
}
