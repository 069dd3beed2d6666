// The choice among kernels that read operands as they lie in memory: tiles, and which sums are cut or shared.
#include "problems.h"

// Whether a product of float64 has blocks that go from tile to tile.
bool persists(const Config& c) { return cuda::is_persistent(DType::f64, c); }

// Whether parts have about as many steps as each block has in all, one for each of 132 multiprocessors or several, 4 in a
// tile.
bool near_share(int part, int64_t tiles_of_all_sums, int blocks = 132) {
    const double share = 4 * static_cast<double>(tiles_of_all_sums) / blocks;
    return part >= 0.9 * share - 1 && part <= 1.1 * share + 2;
}

// Large tiles of float64 on Hopper: sums are cut so that all multiprocessors have as much to do.
void sums_in_parts() {
    const auto choice = [](Product p) { return cuda::choose(p, hopper); };
    const Config whole{Method::Hopper, TileSize::Large, 1, 1, 1};
    CHECK(choice(lower_product(DType::f64, 4096)) == whole, "no longer than what each has to do");
    CHECK(choice(lower_product(DType::f64, 1024)).tile == TileSize::Small, "few tiles");
    // Two lower triangles have small ones first, two blocks on a multiprocessor.
    for (const int64_t n : {1152, 1280, 1408, 1500, 1600, 1664, 2048, 2311, 2560, 3072}) {
        const Config c = choice(lower_product(DType::f64, n));
        const bool large = n >= 1900;
        const int64_t tiles = ceil_div(n, large ? 128 : 64),
                      all = tiles * (tiles + 1) * (tiles + 2) / 6;
        CHECK(persists(c) && (c.tile == TileSize::Large) == large &&
                  near_share(c.part, all, large ? 132 : 264),
              "%d: %d", (int)n, c.part);
    }
    // Dense results, of more multiplications, have them sooner.
    for (const int64_t n : {500, 600, 800, 1000, 1152, 1430, 1600, 1792}) {
        Product p = lower_product(DType::f64, n);
        p.b.kind = Kind::Upper;
        CHECK(persists(choice(p)) == (n >= 1152), "%d", (int)n);
        std::swap(p.a, p.b);
        CHECK(persists(choice(p)) == (n >= 1152), "%d", (int)n);
        p = dense_product(DType::f64, n);
        for (int turn = 0; turn < 2; ++turn, std::swap(p.a.kind, p.b.kind)) {
            const Config c = choice(p);
            CHECK(persists(c) == (n >= 800) && (c.tile == TileSize::Large) == (n >= 1600), "%d",
                  (int)n);
        }
    }
    // So have a triangle and a square.
    const auto beside = [](int64_t n, bool left) {
        Product p = times_dense(DType::f64, n, 1);
        if (!left) std::swap(p.a, p.b);
        return p;
    };
    for (const int64_t n : {1024, 1100, 1280, 1408}) {
        const Config c = choice(beside(n, true));
        const bool large = n >= 1280;
        const int64_t tiles = ceil_div(n, large ? 128 : 64);
        CHECK(persists(c) && (c.tile == TileSize::Large) == large &&
                  near_share(c.part, tiles * tiles * (tiles + 1) / 2, large ? 132 : 264),
              "%d: %d", (int)n, c.part);
    }
    CHECK(persists(choice(beside(1024, false))), "rows of the triangle across the sum");
    Product upper = times_dense(DType::f64, 900, 1);
    upper.a.kind = Kind::Upper;
    CHECK(persists(choice(upper)) && choice(upper).tile == TileSize::Small, "both across the sum");
    Product narrow = times_dense(DType::f64, 16384, 1);
    narrow.n = narrow.b.cols = 128;
    narrow.b.row_stride = narrow.c.row_stride = 128;
    CHECK(near_share(choice(narrow).part, 128 * 129 / 2), "%d", choice(narrow).part);
    narrow.m = narrow.k = narrow.b.rows = 4096;
    CHECK(near_share(choice(narrow).part, 32 * 33 / 2), "%d", choice(narrow).part);
    CHECK(!persists(choice(beside(590, true))), "few tiles");
    Product rows = gram(DType::f64, 256, 1);
    rows.k = rows.a.cols = rows.b.rows = rows.a.row_stride = rows.b.col_stride = 8192;
    CHECK(!persists(choice(rows)), "few tiles of long sums, which eight blocks share");
    CHECK(cuda::most_few(132, true) == 165 && cuda::most_few(132, false) == 132,
          "the last are the shortest, where sums differ");
    // 132 multiprocessors: four tiles of 136 are left for the second round, none of 264. Of 78 whole sums that all run
    // at once the ends go to the multiprocessors that are free, two each.
    CHECK(choice(gram(DType::f64, 2048, 1)).part == 6, "%d",
          choice(gram(DType::f64, 2048, 1)).part);
    CHECK(choice(gram(DType::f64, 256, 88)).part == 0, "whole rounds");
    CHECK(choice(gram(DType::f64, 1536, 1)).part == 33, "%d",
          choice(gram(DType::f64, 1536, 1)).part);
    // A trapezoid has indices for tiles above the diagonal too: 256, which leave 124.
    Product trapezoid = gram(DType::f64, 2048, 1);
    --trapezoid.n;
    CHECK(choice(trapezoid).part == 0, "%d", choice(trapezoid).part);
    // So it is with tiles of the engine, but for more rows of them than a word can name.
    CHECK(choice(gram(DType::bf16, 4096, 1)).part > 0, "two rounds, and four tiles");
    Product tall = times_dense(DType::bf16, 4096, 1);
    tall.a.kind = Kind::Dense;
    tall.a.row_stride = tall.k;
    tall.a.col_stride = 1;
    tall.n = tall.b.cols = tall.b.row_stride = tall.c.row_stride = 256;
    for (const int64_t tiles : {1000, 1030}) {
        tall.m = tall.a.rows = 256 * tiles;
        const Config c = cuda::choose(tall, cuda::Device{132, true, 227, int64_t{16} << 30});
        CHECK(c.method == Method::Engine && (c.part > 0) == (tiles == 1000), "%d: %d", (int)tiles,
              c.part);
    }
    // What they need for that is not always there, nor everywhere.
    CHECK(!persists(cuda::choose(lower_product(DType::f64, 4096), hopper, false)),
          "no scratch memory");
    CHECK(!persists(cuda::choose(lower_product(DType::f64, 4096), ampere)), "ampere");
    Product subtraction = lower_product(DType::f64, 4096);
    subtraction.alpha = -1;
    subtraction.beta = 1;
    CHECK(choice(subtraction) == whole, "into what is there");
    const Config small{Method::Hopper, TileSize::Small, 1, 1, 1};
    CHECK(choice(lower_product(DType::f64, 192, 256)) == small, "large tiles would be half empty");
    CHECK(choice(times_dense(DType::f64, 512, 32)) == whole, "full ones");
    CHECK(!persists(choice(lower_product(DType::f64, 256, 8))), "few tiles");
    CHECK(choice(lower_product(DType::f64, 384, 16)).tile == TileSize::Small, "few tiles each");
    CHECK(persists(choice(times_dense(DType::f64, 384, 16))), "enough");
    CHECK(near_share(choice(lower_product(DType::f64, 384, 16)).part, 16 * 56, 264),
          "long sums, few matrices");
}

// Sums of two triangles are cut into parts that are about as long, so that all blocks run at once.
void graded_sums() {
    const auto choice = [](DType dtype, int64_t n) {
        return cuda::choose(lower_product(dtype, n), hopper);
    };
    for (const int64_t n : {385, 448, 576, 640, 768, 832, 900, 1024, 1088})
        for (const DType dtype : {DType::bf16, DType::f64}) {
            const Config c = choice(dtype, n);
            if (dtype == DType::f64 && (n < 600 || n > 1024)) continue;
            const int64_t tiles = ceil_div(n, 64);
            CHECK(c.split == 4 && tiles <= 2 * c.graded && c.split_above == 3 * c.graded / 2 + 1,
                  "%d: parts of %d half tiles", (int)n, c.graded);
            int64_t blocks = 0;
            for (int64_t length = 1; length <= tiles; ++length)
                blocks += (tiles + 1 - length) * ceil_div(2 * length, c.graded);
            CHECK(blocks <= 2 * hopper.multiprocessors, "%d: %d blocks", (int)n, (int)blocks);
        }
    CHECK(choice(DType::c64, 640).graded, "complex64");
    CHECK(choice(DType::f64, 65).split == 4 && choice(DType::f64, 129).split == 8,
          "a tile that is nearly empty has a step all the same");
    CHECK(!choice(DType::f32, 512).graded, "so few sums that four blocks can share each");
    CHECK(!choice(DType::f64, 1340).graded, "large tiles");
    CHECK(!cuda::choose(lower_product(DType::bf16, 512, 4), hopper).graded, "a batch");
    CHECK(!cuda::choose(lower_product(DType::f64, 1024), ampere).graded, "no clusters");
    CHECK(cuda::choose(times_dense(DType::f64, 640, 1), hopper).graded, "one triangle, float64");
    CHECK(cuda::choose(times_dense(DType::bf16, 512, 1), hopper).graded, "one triangle");
    CHECK(cuda::choose(dense_product(DType::bf16, 576), hopper) ==
              (Config{Method::Hopper, TileSize::Small, 2, 6, 1}),
          "where more than two would need more than a multiprocessor for each block");
}

// Batches of small products: tiles without padding, and sums that are shared only where tiles are few.
void batches() {
    const auto choice = [](Product p) { return cuda::choose(p, hopper); };
    const Config alone{Method::Direct, TileSize::Large, 1, 1, 1};
    CHECK(choice(lower_product(DType::f32, 256, 256)) == alone, "large tiles fill the device");
    CHECK(choice(times_dense(DType::f32, 192, 512)).tile == TileSize::Small, "half of them empty");
    CHECK(choice(times_dense(DType::f32, 192, 8)).split > 1, "few tiles");
    CHECK(choice(times_dense(DType::f32, 192, 512)).split == 1, "many tiles");
    CHECK(choice(lower_product(DType::f64, 80, 512)).method == Method::Hopper, "float64");
    CHECK(choice(lower_product(DType::f64, 512, 512)).method == Method::Hopper, "long sums");
    const Config words{Method::Hopper, TileSize::Small, 1, 1, 1};
    CHECK(choice(lower_product(DType::bf16, 192, 32)) == words, "bfloat16");

    CHECK(!cuda::leaves_to_dense(times_dense(DType::bf16, 512, 8), hopper) &&
              cuda::leaves_to_dense(times_dense(DType::bf16, 512, 8), ampere),
          "dense torch has to have its zeros made good");
    CHECK(!cuda::leaves_to_dense(times_dense(DType::bf16, 192, 8), hopper), "less than that");
    CHECK(!cuda::leaves_to_dense(times_dense(DType::bf16, 1024, 1'000'000), hopper), "memory");
    CHECK(!cuda::leaves_to_dense(gram(DType::bf16, 192, 32), hopper) &&
              cuda::leaves_to_dense(gram(DType::bf16, 192, 32), ampere),
          "dense operands, bfloat16");
    CHECK(!cuda::leaves_to_dense(gram(DType::f64, 256, 128), hopper), "dense operands, float64");
    CHECK(cuda::leaves_to_dense(gram(DType::f32, 96, 32), ampere), "dense operands, float32");
    CHECK(!cuda::leaves_to_dense(gram(DType::f32, 96, 512), hopper), "many of them");
}

int main() {
    sums_in_parts();
    graded_sums();
    batches();
    std::puts("choose_direct: ok");
}
