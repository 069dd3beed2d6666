// The choice of a CUDA kernel, which needs no GPU.
#include "problems.h"

const DType dtypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};

void every_choice_is_possible(const cuda::Device& device) {
    for (const DType dtype : dtypes)
        for (int64_t n = 1; n < 70000; n = n * 5 / 4 + 1)
            for (const int64_t batch : {1, 3, 1000}) {
                const Config c = cuda::choose(lower_product(dtype, n, batch), device);
                CHECK(c.split == 1 || c.split == 2 || c.split == 4 || c.split == 8, "%d", c.split);
                CHECK(c.part >= 0, "%d", c.part);
                CHECK(c.part == 0 || cuda::is_persistent(dtype, c) ||
                          (c.method == Method::Engine && c.tile == TileSize::Large),
                      "parts of %d", c.part);
                CHECK(c.tile == TileSize::Small ||
                          cuda::tile_shared_kib(dtype, c.tile) <= device.shared_kib,
                      "shared memory for %d", static_cast<int>(dtype));
                CHECK(c.split == 1 || device.clusters, "a split of %d without clusters", c.split);
                CHECK(c.split_above >= 1 && c.group >= 1, "%d, %d", c.split_above, c.group);
            }
}

// Where there is memory for them, and the product can wait for them.
void large_products_go_through_images() {
    Product p = lower_product(DType::bf16, 4096);
    CHECK(cuda::choose(p, hopper).method == Method::Engine, "bfloat16");
    CHECK(cuda::choose(p, hopper, false).method == Method::Direct, "no scratch memory");
    CHECK(cuda::choose(p, ampere).method == Method::Direct, "ampere");
    CHECK(cuda::choose(lower_product(DType::bf16, 66000), hopper).method == Method::Direct,
          "memory");
    const cuda::Device large = cuda::describe(132, 9, 227, int64_t{80} << 30);
    CHECK(cuda::choose(lower_product(DType::bf16, 66000), large).method == Method::Engine,
          "more memory");
    CHECK(cuda::choose(lower_product(DType::bf16, 500), hopper).method != Method::Engine, "small");
    p = lower_product(DType::f32, 4096);
    CHECK(cuda::choose(p, hopper).method == Method::Engine, "float32");
    p.beta = 1;
    CHECK(cuda::choose(p, hopper).method == Method::Engine, "a sum into the result");
    p = lower_product(DType::bf16, 4096);
    p.beta = 1;
    CHECK(cuda::choose(p, hopper).method == Method::Direct, "16-bit sums are not scaled");
}

// Batches whose matrices are large enough, or enough of them, go through images together.
void batches_by_images() {
    const auto by_images = [](const Product& p, const cuda::Device& device = hopper) {
        const bool images = cuda::choose(p, device).method == Method::Engine;
        CHECK(!images || !cuda::leaves_to_dense(p, device), "twice");
        return images;
    };
    const auto rounded = [](Product p) {
        p.tf32 = true;
        return p;
    };
    CHECK(by_images(lower_product(DType::bf16, 512, 32)), "bfloat16");
    CHECK(by_images(lower_product(DType::bf16, 512, 8)) &&
              !by_images(lower_product(DType::bf16, 512, 4)),
          "few");
    CHECK(by_images(lower_product(DType::f32, 512, 4)), "float32");
    CHECK(by_images(lower_product(DType::f32, 384, 512)) &&
              !by_images(lower_product(DType::f32, 256, 512)),
          "small");
    CHECK(!by_images(lower_product(DType::f32, 512, 4), ampere), "another device");
    CHECK(by_images(times_dense(DType::bf16, 384, 64)), "a dense operand");
    CHECK(by_images(times_dense(DType::bf16, 512, 8)), "fewer");
    CHECK(!by_images(times_dense(DType::bf16, 320, 8)), "few tiles");
    CHECK(by_images(gram(DType::bf16, 256, 128)), "dense operands");
    CHECK(!by_images(gram(DType::bf16, 192, 8)), "few tiles of these");
    CHECK(by_images(rounded(gram(DType::f32, 1024, 8))), "dense operands in TF32");
    CHECK(!by_images(rounded(gram(DType::f32, 128, 512))), "small ones");
    // A triangle times itself or its transpose needs one image, two triangles need two.
    Product one = rounded(lower_product(DType::f32, 512, 64));
    CHECK(!by_images(one), "two triangles");
    one.b = one.a;
    CHECK(by_images(one), "a triangle times itself");
    one.b.kind = Kind::Upper;
    CHECK(by_images(one), "times its transpose");
    CHECK(by_images(rounded(times_dense(DType::f32, 512, 128))), "a dense operand in TF32");
    CHECK(!by_images(rounded(times_dense(DType::f32, 256, 64))), "small ones");
    const auto is_left = [&](int64_t n, int64_t batch) {
        return cuda::leaves_to_dense(rounded(times_dense(DType::f32, n, batch)), hopper);
    };
    CHECK(!is_left(256, 64) && !is_left(192, 512) && !is_left(272, 512) && !is_left(208, 32),
          "kept");
    CHECK(is_left(208, 64) && is_left(224, 512) && is_left(256, 128), "past direct tiles");
    Product s = times_dense(DType::f32, 2048, 1);
    s.a.kind = Kind::Symmetric;
    CHECK(!cuda::leaves_to_dense(s, hopper) && !cuda::leaves_to_dense(rounded(s), hopper),
          "a symmetric operand");
    CHECK(cuda::leaves_to_dense(s, ampere), "a symmetric operand where there are no images");
    s.b = lower_product(DType::f32, 384).b;
    s.m = s.n = s.k = s.a.rows = s.a.cols = 384;
    CHECK(cuda::leaves_to_dense(rounded(s), hopper) && cuda::goes_on_unpacked(s, hopper),
          "beside a triangle");

    // Small tiles pad less.
    CHECK(cuda::choose(times_dense(DType::bf16, 512, 512), hopper).tile == TileSize::Small, "512");
    CHECK(cuda::choose(times_dense(DType::bf16, 1024, 32), hopper).tile == TileSize::Large, "1024");
    CHECK(cuda::choose(lower_product(DType::bf16, 1024, 32), hopper).tile == TileSize::Small,
          "triangles");
}

// Products of float32 that may be rounded have tiles of both sizes, and explain says what they do.
void tf32_is_a_choice() {
    Product p = lower_product(DType::f32, 8192);
    CHECK(cuda::explain(p, hopper).find("three bfloat16 parts") != std::string::npos, "parts");
    p.tf32 = true;
    const Config large = cuda::choose(p, hopper);
    CHECK(large.method == Method::Engine && large.tile == TileSize::Large, "large");
    CHECK(cuda::explain(p, hopper).find("in tf32") != std::string::npos, "tf32");
    CHECK(cuda::explain(p, ampere).find("tf32") == std::string::npos, "direct");
    CHECK(cuda::choose(p, ampere).method == Method::Direct, "ampere");
    p.beta = 1;
    CHECK(!cuda::by_images(cuda::choose(p, hopper)), "what is lost could not be added again");
    p.tf32 = false;
    CHECK(cuda::by_images(cuda::choose(p, hopper)), "parts can be added");
}

// Images are made beside large products of 16-bit triangles without gaps, whose rows start where they
// are expected to, and whose result is packed.
void large_products_make_their_images() {
    const auto method = [](const Product& p) { return cuda::choose(p, hopper).method; };
    Product p = lower_product(DType::bf16, 12288);
    CHECK(method(p) == Method::Fused, "bfloat16");
    CHECK(cuda::explain(p, hopper).find("made on the way") != std::string::npos, "explained");
    CHECK(method(lower_product(DType::bf16, 8192)) == Method::Engine, "too small");
    CHECK(method(lower_product(DType::f32, 12288)) == Method::Engine, "float32");
    CHECK(method(lower_product(DType::bf16, 12288, 3)) == Method::Fused, "a batch");
    CHECK(method(lower_product(DType::bf16, 12289, 3)) == Method::Engine, "a batch at odd places");
    alignas(16) static const char memory[16] = {};
    p.a.data = memory + 2;
    CHECK(method(p) == Method::Engine, "an odd place");
    p.a.data = p.b.data;
    CHECK(method(p) == Method::Engine, "one image");
    p.a.data = memory;
    CHECK(method(p) == Method::Fused, "two images");
    p.c.kind = Kind::Dense;
    CHECK(method(p) == Method::Engine, "a dense result");
    p.a.kind = Kind::Symmetric;
    CHECK(method(p) != Method::Fused, "mirrored");
    const auto group = [](const Product& p) { return cuda::choose(p, hopper).group; };
    CHECK(group(lower_product(DType::bf16, 8192)) == 1, "two images");
    CHECK(group(lower_product(DType::bf16, 12288)) == 8, "two images made on the way");
    const auto squared = [](int64_t n) {
        Product p = lower_product(DType::bf16, n);
        p.b.data = p.a.data;
        return p;
    };
    CHECK(group(squared(8192)) == 1, "one image");
    CHECK(group(squared(12288)) == 4, "one large image");
    CHECK(group(lower_product(DType::f32, 8192)) == 8, "three parts");
    CHECK(group(times_dense(DType::bf16, 8192, 1)) == 1, "panels");
    const auto parts = [](int64_t n, int64_t vectors) {
        Product p = times_columns(DType::f32, n, vectors);
        p.a.kind = Kind::Symmetric;
        return p;
    };
    CHECK(group(parts(8192, 1025)) == 8 && group(parts(8192, 1024)) == 1, "few columns of tiles");
    CHECK(method(parts(4096, 256)) == Method::Engine, "columns beside a symmetric matrix");
    CHECK(!cuda::leaves_to_dense(parts(4096, 256), hopper), "sooner than a copy of it");
    CHECK(method(parts(2048, 257)) == Method::Engine && method(parts(1024, 64)) != Method::Engine,
          "from a certain order on");
    CHECK(method(times_columns(DType::f32, 2500, 400)) == Method::Engine &&
              method(times_columns(DType::f32, 768, 80)) != Method::Engine,
          "beside a triangle");
    cuda::force(1, -1, -1, -1, -1);
    CHECK(method(lower_product(DType::bf16, 12288)) == Method::Engine, "forced");
    cuda::force(4, -1, -1, -1, -1);
    CHECK(method(lower_product(DType::bf16, 100)) == Method::Fused, "forced");
    CHECK(method(lower_product(DType::f32, 100)) == Method::Engine, "as far as it can be");
    cuda::force(-1, -1, -1, -1, -1);
}

// What images the engine reads of float32.
void float32_images() {
    const int64_t n = 1000, blocks = row_start(16);
    Product p = lower_product(DType::f32, n);
    const Config config{Method::Engine, TileSize::Small, 1, 1, 1};
    const auto layout = [&] { return cuda::engine_layout(p, config, hopper.multiprocessors); };
    const auto same = [&](Kind a, Kind b) {
        p.a.kind = a;
        p.b = p.a;
        p.b.kind = b;
        return layout();
    };
    CHECK(layout().a.bytes == 3 * blocks * cuda::Image::BLOCK_BYTES, "three parts");
    CHECK(same(Kind::Lower, Kind::Lower).shared_image, "parts are read either way");
    p.tf32 = true;
    const int64_t behind = layout().a.bytes - blocks * cuda::Image::BLOCK_BYTES;
    CHECK(behind >= cuda::ImageScale::bytes(blocks) && behind % 1024 == 0 && behind < 4096,
          "one, and what is noted of its blocks");
    CHECK(same(Kind::Lower, Kind::Lower).shared_image && !layout().a.run.across &&
              layout().b.run.across,
          "L L");
    CHECK(same(Kind::Lower, Kind::Upper).shared_image, "L L^T");
    CHECK(same(Kind::Symmetric, Kind::Symmetric).shared_image, "S S");
    CHECK(layout().marks > 0, "elements that float16 cannot hold");

    // Of a symmetric matrix the stored half is enough for large ones, beside whose images kernels take long that read lines
    // by turns, and for large tiles.
    const auto of_symmetric = [](DType dtype, int64_t n, TileSize tile) {
        Product p = times_dense(dtype, n, 1);
        p.a.kind = Kind::Symmetric;
        const Config config{Method::Engine, tile, 1, 1, 1};
        return cuda::engine_layout(p, config, hopper.multiprocessors).a;
    };
    const auto parts = of_symmetric(DType::f32, 8192, TileSize::Small),
               small = of_symmetric(DType::f32, 1024, TileSize::Small);
    CHECK(parts.run.turns && !small.run.turns, "three parts");
    CHECK(3 * 8192 * (8192 + 256) == parts.bytes && 6 * 1024 * 1024 == small.bytes, "of all");
    CHECK(of_symmetric(DType::bf16, 1024, TileSize::Large).run.turns &&
              !of_symmetric(DType::bf16, 1024, TileSize::Small).run.turns &&
              of_symmetric(DType::bf16, 4096, TileSize::Small).run.turns &&
              !of_symmetric(DType::bf16, 4096, TileSize::Half).run.turns,
          "one part");

    // Dense operands are mapped in 16-bit types alone.
    alignas(16) static const float dense[8] = {};
    p.b = {dense, Kind::Dense, n, n, 1, n, 0};
    CHECK(!layout().b.mapped, "TF32");
    p.tf32 = false;
    CHECK(!layout().b.mapped, "parts are made while packing");
    p.dtype = DType::bf16;
    CHECK(layout().b.mapped, "bfloat16");
}

// One packed matrix times `batch` dense ones of so many columns.
Product times_many(DType dtype, int64_t n, int64_t batch, int64_t cols) {
    Product p = times_dense(dtype, n, batch);
    p.a.batch_stride = 0;
    p.n = p.b.cols = p.b.row_stride = p.c.row_stride = cols;
    p.b.batch_stride = p.c.batch_stride = n * cols;
    return p;
}

// Columns of a batch become those of one product where that has images.
void columns_are_joined() {
    const auto joined = [](const Product& p) { return cuda::choose(p, h100).joined; };
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
        const Product p = times_many(dtype, 2048, 32, 64);
        CHECK(joined(p) && cuda::choose(p, h100).method == Method::Engine, "2048");
        CHECK(!cuda::leaves_to_dense(p, h100), "dense torch is slower");
        CHECK(!cuda::turns({dtype, Kind::Lower, 2048, 64, 32, false}, h100), "without copies");
        CHECK(!cuda::choose(p, h100, false).joined, "without scratch memory");
        CHECK(!joined(times_many(dtype, 2048, 32, 65)), "blocks of two matrices");
        CHECK(!joined(times_many(dtype, 256, 3, 64)), "few");
        CHECK(!joined(times_dense(dtype, 2048, 32)), "a triangle for each");
    }
    Product p = times_many(DType::bf16, 2048, 32, 64);
    p.a.kind = Kind::Upper;
    CHECK(joined(p), "Upper");
    CHECK(!cuda::choose(p, ampere).joined, "no engine");
    p.c.row_stride = 68;
    CHECK(!joined(p), "rows of results that are not aligned");
    p = times_many(DType::f32, 2048, 32, 64);
    p.tf32 = true;
    CHECK(!joined(p), "matrices with scales of their own");
    CHECK(!joined(times_many(DType::f64, 2048, 32, 64)), "float64");
    p = times_many(DType::f32, 2048, 32, 64);
    p.a.kind = Kind::Symmetric;
    CHECK(joined(p), "Symmetric");
}

// A dense operand that the L2 cache does not hold is read panel by panel.
void dense_operands_have_panels() {
    using cuda::Panels;
    const auto layout = [](const Product& p, Config config) {
        return cuda::engine_layout(p, config, h100.multiprocessors);
    };
    const Config large{Method::Engine, TileSize::Large, 1, 1, 1};
    Product p = times_dense(DType::bf16, 2048, 1);
    const auto columns = [&](int64_t cols) {
        p.n = p.b.cols = p.b.row_stride = p.c.row_stride = cols;
    };
    CHECK(layout(p, large).panels == Panels::None, "8 MiB");
    columns(32768);
    const auto wide = layout(p, large);
    CHECK(wide.panels == Panels::Columns && wide.panel_count == 128, "128 MiB");
    CHECK(wide.work.schedule.size() == 8 && wide.work.shared_tiles == 0, "a panel has 8 tiles");
    columns(32769);
    CHECK(layout(p, large).panel_count == 129, "one more column");
    columns(32768);
    const Config small{Method::Engine, TileSize::Small, 1, 1, 1};
    columns(int64_t{128} * (cuda::EngineItem::MOST_MATRICES - 1));
    CHECK(layout(p, small).panel_count == cuda::EngineItem::MOST_MATRICES - 1, "the last number");
    columns(int64_t{128} * cuda::EngineItem::MOST_MATRICES);
    CHECK(layout(p, small).panels == Panels::None, "more than items can name");
    columns(32768);
    Config other = large;
    other.method = Method::Fused;
    CHECK(layout(p, other).panels == Panels::None, "pieces come in the order of all tiles");
    other = large;
    other.group = 8;
    CHECK(layout(p, other).panels == Panels::None, "groups");
    std::swap(p.a, p.b);
    std::swap(p.m, p.n);
    p.a = {p.a.data, Kind::Dense, p.m, p.k, p.k, 1, p.m * p.k};
    const auto tall = layout(p, large);
    CHECK(tall.panels == Panels::Rows && tall.panel_count == 128, "rows");
    CHECK(tall.work.schedule.size() == 8, "of 8 tiles");
}

// Sums that the engine cuts, and what two products in one launch change.
void the_engine_shares_what_it_can() {
    const auto chosen = [](const Product& p, int together = 1) {
        return cuda::choose(p, hopper, true, together);
    };
    const Product middle = lower_product(DType::bf16, 2048);
    CHECK(chosen(middle).method == Method::Engine && chosen(middle).split == 2, "2048");
    CHECK(chosen(lower_product(DType::f32, 1024)).split == 4, "1024");
    CHECK(chosen(middle) == chosen(middle) && !(chosen(middle) == chosen(middle, 2)),
          "two fill the device better");
    const Product small = lower_product(DType::bf16, 1024);
    CHECK(chosen(small).method == Method::Hopper && chosen(small, 2).method == Method::Engine,
          "two are worth images sooner");

    const Product dense = dense_product(DType::bf16, 2048);
    CHECK(chosen(dense).method == Method::Engine && chosen(dense).split == 1,
          "of a dense result there are twice the tiles");
    Product tf32 = lower_product(DType::f32, 1280);
    tf32.tf32 = true;
    CHECK(chosen(tf32).tile == TileSize::Half && chosen(tf32).split == 2, "tiles are few");
    // The more there is for all blocks, the fewer sums are long enough to be shared.
    double before = 0;
    for (int64_t n = 2048; n <= 2560; n += 128) {
        tf32 = lower_product(DType::f32, n);
        tf32.tf32 = true;
        const Config config = chosen(tf32);
        const double above = config.split_above * 128.0 / static_cast<double>(n);
        CHECK(config.tile == TileSize::Small && config.split == 2 && above > before,
              "%d: from %d tiles on", int(n), config.split_above);
        before = above;
    }
    tf32 = lower_product(DType::f32, 2816);
    tf32.tf32 = true;
    CHECK(chosen(tf32).split == 1, "none");

    cuda::force(1, 0, 8, 1, 1);
    Product p = lower_product(DType::f32, 300);
    CHECK(chosen(p).split == 4, "split %d", chosen(p).split);
    p.alpha = -1;
    p.beta = 1;
    CHECK(chosen(p).split == 4, "a sum into C too: split %d", chosen(p).split);
    cuda::force(1, 1, 8, 1, 1);
    CHECK(chosen(middle).split == 1, "large tiles are not shared");
    p = lower_product(DType::bf16, 128);
    p.m = int64_t{0xffff} * 128 + 1;
    p.a.kind = p.c.kind = Kind::Dense;
    CHECK(chosen(p).method != Method::Engine, "a row of tiles beyond 16 bits");
    cuda::force(-1, -1, -1, -1, -1);
}

// Two dense matrices whose product is packed: all sums are equally long, so that rounds of all blocks count.
void dense_pairs() {
    const auto pair = [](DType dtype, int64_t n, int64_t k, bool tf32 = false) {
        Product p = gram(dtype, n, 1);
        p.k = p.a.cols = p.b.rows = k;
        p.a.row_stride = p.b.col_stride = k;
        p.tf32 = tf32;
        return p;
    };
    const auto chosen = [](const Product& p) { return cuda::choose(p, hopper); };
    const auto left = [](const Product& p) { return cuda::leaves_to_dense(p, hopper); };
    // 36, 66, 78 and 120 tiles for 132 blocks.
    CHECK(chosen(pair(DType::f32, 768, 768)).split == 4, "four rounds fit into one");
    CHECK(chosen(pair(DType::bf16, 1408, 1408)).tile == TileSize::Half &&
              chosen(pair(DType::bf16, 1408, 1408)).split == 1,
          "all halves do");
    CHECK(chosen(pair(DType::bf16, 1408, 128)).split == 1, "short sums are not worth it");
    CHECK(chosen(pair(DType::f32, 1536, 1536)).split == 1, "a second round is not");
    CHECK(chosen(pair(DType::f32, 2304, 2304)).split == 2, "three of half the length, not two");
    CHECK(chosen(pair(DType::bf16, 1920, 1920)).tile == TileSize::Small &&
              chosen(pair(DType::bf16, 2048, 256)).tile == TileSize::Large,
          "136 small tiles take two rounds, and 36 large ones take one");
    CHECK(chosen(pair(DType::f32, 1280, 5120, true)).tile == TileSize::Small, "shared in one");

    // Columns beside one triangle: few enough tiles for four blocks each, and long rows of large ones.
    const auto columns = [&](int64_t n, int64_t m, bool tf32) {
        Product p = times_columns(DType::f32, n, m);
        p.tf32 = tf32;
        return chosen(p);
    };
    CHECK(columns(1536, 384, true).method == Method::Engine &&
              columns(1536, 384, true).tile == TileSize::Half &&
              columns(1536, 192, true).method == Method::Hopper,
          "TF32");
    CHECK(columns(1536, 400, false).split == 4 && columns(4096, 512, false).split == 2, "float32");
    CHECK(columns(4096, 768, true).tile == TileSize::Small &&
              columns(2048, 3072, true).tile == TileSize::Large,
          "the longest sum of a large tile is not all that there is");

    // How narrow they may be for the engine.
    CHECK(chosen(pair(DType::bf16, 2560, 64)).method == Method::Engine, "columns are few");
    CHECK(chosen(pair(DType::f32, 1920, 512, true)).method == Method::Engine &&
              chosen(pair(DType::f32, 1920, 64, true)).method == Method::Hopper &&
              !left(pair(DType::f32, 1024, 32, true)),
          "TF32");
    CHECK(chosen(pair(DType::f32, 1536, 64)).method == Method::Engine, "float32");
    CHECK(chosen(pair(DType::bf16, 1500, 256)).method == Method::Engine, "rows not aligned");
    CHECK(left(pair(DType::bf16, 1024, 192)) && !left(pair(DType::bf16, 1408, 128)), "few tiles");
    CHECK(left(pair(DType::bf16, 1024, 1024)) && !left(pair(DType::bf16, 1152, 1152)) &&
              !left(pair(DType::bf16, 1536, 4096)),
          "rows");
    CHECK(!left(pair(DType::bf16, 2048, 2048)), "large tiles");
    CHECK(chosen(pair(DType::bf16, 8192, 8)).method != Method::Engine, "very narrow");
    // 45 and 55 large tiles for 66 clusters.
    CHECK(chosen(pair(DType::bf16, 2304, 4608)).part > 0 &&
              chosen(pair(DType::bf16, 2560, 4096)).part == 0,
          "a round that is nearly full is not cut");
}

int main() {
    every_choice_is_possible(hopper);
    every_choice_is_possible(ampere);
    every_choice_is_possible(ada);

    // Small problems get small tiles, and their long sums are shared; big ones neither.
    const Config small = cuda::choose(lower_product(DType::f32, 700), hopper);
    CHECK(small.tile == TileSize::Small && small.split > 1, "split %d", small.split);
    const Config big = cuda::choose(lower_product(DType::f64, 16384), hopper);
    CHECK(big.tile == TileSize::Large && big.split == 1, "split %d", big.split);
    // A batch fills the device without sharing.
    CHECK(cuda::choose(lower_product(DType::f32, 1024, 64), hopper).split <= 2, "batch");

    large_products_go_through_images();
    batches_by_images();
    the_engine_shares_what_it_can();
    dense_pairs();
    tf32_is_a_choice();
    float32_images();
    columns_are_joined();
    dense_operands_have_panels();
    large_products_make_their_images();

    // Many small products are each had by one block; a few are better spread over the device.
    const auto side = [](DType dtype, int64_t n, int64_t batch, const cuda::Device& device) {
        return cuda::small_side(lower_product(dtype, n, batch), device);
    };
    CHECK(side(DType::bf16, 16, 1, hopper) == 0, "side %d", side(DType::bf16, 16, 1, hopper));
    CHECK(side(DType::bf16, 16, 132, hopper) == 32, "side %d", side(DType::bf16, 16, 132, hopper));
    CHECK(side(DType::bf16, 33, 4096, hopper) == 64 && side(DType::bf16, 64, 2, hopper) == 0, "64");
    CHECK(side(DType::f32, 64, 1, hopper) == 64 && side(DType::f32, 65, 1, hopper) == 0, "grid");
    CHECK(side(DType::f32, 128, 4096, hopper) == 128 && side(DType::f32, 129, 4096, hopper) == 0,
          "128");
    CHECK(side(DType::f64, 128, 4096, hopper) == 0, "float64 tiles of 128 exceed shared memory");
    // The kernel for two lower triangles keeps no tiles.
    CHECK(side(DType::f32, 128, 4096, ampere) == 128 && side(DType::f32, 128, 4096, ada) == 128,
          "float32 before Hopper");
    CHECK(side(DType::f64, 64, 4096, ada) == 64, "float64 before Hopper");
    CHECK(cuda::small_side(times_dense(DType::f32, 128, 4096), ampere) == 0, "tiles before Hopper");
    // A symmetric operand is mirrored there; few such products are unpacked for dense torch.
    const auto symmetric = [](DType dtype, int64_t n, int64_t batch, Kind other) {
        Product p =
            other == Kind::Dense ? times_dense(dtype, n, batch) : lower_product(dtype, n, batch);
        p.a.kind = Kind::Symmetric;
        p.b.kind = other;
        return cuda::small_side(p, hopper) > 0 && !cuda::leaves_to_dense(p, hopper);
    };
    CHECK(symmetric(DType::f32, 16, 1024, Kind::Dense), "many");
    CHECK(!symmetric(DType::f32, 16, 128, Kind::Dense), "few");
    CHECK(symmetric(DType::f32, 100, 128, Kind::Lower), "beside a triangle");
    CHECK(!symmetric(DType::f64, 100, 1024, Kind::Lower), "no room");
    CHECK(!symmetric(DType::f64, 64, 1024, Kind::Dense), "dense torch is as fast");

    // What is forced is chosen, except what the device cannot do.
    cuda::force(0, 0, 8, 3, 4);
    const Config forced = cuda::choose(lower_product(DType::f32, 8192), hopper);
    CHECK(forced.method == Method::Direct && forced.tile == TileSize::Small && forced.split == 8 &&
              forced.split_above == 3 && forced.group == 4,
          "forced");
    CHECK(cuda::choose(lower_product(DType::f32, 8192), ampere).split == 1, "no clusters");
    cuda::force(1, 1, -1, -1, -1);
    CHECK(cuda::choose(lower_product(DType::f32, 100), hopper).tile == TileSize::Small, "one size");
    CHECK(cuda::choose(lower_product(DType::f32, 100), hopper).method == Method::Engine, "forced");
    CHECK(cuda::choose(lower_product(DType::f64, 100), hopper).method == Method::Direct, "float64");
    CHECK(cuda::choose(lower_product(DType::f32, 100), ampere).method == Method::Direct, "ampere");
    cuda::force(2, 1, -1, -1, -1);
    CHECK(cuda::choose(lower_product(DType::f64, 100), hopper).method == Method::Hopper,
          "blocks that go from tile to tile");
    cuda::force(2, -1, -1, -1, -1);
    CHECK(cuda::choose(lower_product(DType::f64, 4096), hopper).method == Method::Hopper,
          "blocks that go from tile to tile");
    CHECK(cuda::choose(lower_product(DType::f64, 4096), ampere).method == Method::Direct, "engine");
    cuda::force(-1, -1, -1, -1, -1);

    // Small tiles of 16-bit elements are multiplied by warpgroups, as far as 32 bits count elements.
    const auto method = [&](DType dtype, int64_t n, const cuda::Device& device) {
        return cuda::choose(lower_product(dtype, n), device, false).method;
    };
    CHECK(method(DType::bf16, 512, hopper) == Method::Hopper, "warpgroups");
    CHECK(method(DType::f16, 7, hopper) == Method::Small, "one block has all of it");
    CHECK(method(DType::bf16, 512, ampere) == Method::Direct, "ampere");
    Product far = lower_product(DType::bf16, 512);
    far.b.kind = far.c.kind = Kind::Dense;
    far.b.row_stride = far.c.row_stride = 512;
    far.b.col_stride = 1;
    CHECK(cuda::choose(far, hopper).method == Method::Mapped,
          "warpgroups, an aligned dense operand");
    far.b.row_stride = 513;
    CHECK(cuda::choose(far, hopper).method == Method::Hopper, "warpgroups, one that is not");
    far.b.row_stride = int64_t{1} << 22;
    CHECK(cuda::choose(far, hopper).method == Method::Direct, "rows far apart");
    far.b.row_stride = 16;
    CHECK(cuda::choose(far, hopper).method == Method::Direct, "rows that overlap");

    const auto says = [&](DType dtype, int64_t n, const char* words) {
        return cuda::explain(lower_product(dtype, n), hopper).find(words) != std::string::npos;
    };
    CHECK(says(DType::f32, 700, "64 x 64"), "explain");
    CHECK(says(DType::bf16, 512, "64 x 64, multiplied by warpgroups"), "explain");
    CHECK(says(DType::f64, 8192, "128 x 128, loaded by warps of their own"), "explain");
    std::puts("config: ok");
}
