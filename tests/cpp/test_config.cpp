// The choice of a CUDA kernel, which needs no GPU.
#include "cuda/config.h"

#include "check.h"
#include "cuda/config.cpp"

using namespace packedtri;
using cuda::Config;
using cuda::TileSize;

const cuda::Device hopper{132, true}, ampere{108, false};

Product lower_product(DType dtype, int64_t n, int64_t batch = 1) {
    Product p{};
    p.dtype = dtype;
    p.m = p.n = p.k = n;
    p.batch = batch;
    return p;  // Kind 0 is Lower: L L, packed.
}

const DType dtypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};

void every_choice_is_possible(const cuda::Device& device) {
    for (const DType dtype : dtypes)
        for (int64_t n = 1; n < 70000; n = n * 5 / 4 + 1)
            for (const int64_t batch : {1, 3, 1000}) {
                const Config c = cuda::choose(lower_product(dtype, n, batch), device);
                CHECK(c.split == 1 || c.split == 2 || c.split == 4 || c.split == 8, "%d", c.split);
                CHECK(c.split == 1 || device.clusters, "a split of %d without clusters", c.split);
                CHECK(c.split_above >= 1 && c.group >= 1, "%d, %d", c.split_above, c.group);
            }
}

int main() {
    every_choice_is_possible(hopper);
    every_choice_is_possible(ampere);

    // Small problems get small tiles, and their long sums are shared; big ones neither.
    const Config small = cuda::choose(lower_product(DType::f32, 1024), hopper);
    CHECK(small.tile == TileSize::Small && small.split == 4, "split %d", small.split);
    const Config big = cuda::choose(lower_product(DType::f64, 16384), hopper);
    CHECK(big.tile == TileSize::Large && big.split == 1, "split %d", big.split);
    // A batch fills the device without sharing.
    CHECK(cuda::choose(lower_product(DType::f32, 1024, 64), hopper).split <= 2, "batch");

    // Many small products are each had by one block; a few are better spread over the device.
    const auto side = [](DType dtype, int64_t n, int64_t batch, const cuda::Device& device) {
        Product p = lower_product(dtype, n, batch);
        p.a.rows = p.a.cols = p.b.rows = p.b.cols = n;
        return cuda::small_side(p, device);
    };
    CHECK(side(DType::bf16, 16, 1, hopper) == 32, "side %d", side(DType::bf16, 16, 1, hopper));
    CHECK(side(DType::f32, 33, 4096, hopper) == 64 && side(DType::f32, 64, 2, hopper) == 0, "64");
    CHECK(side(DType::f32, 128, 4096, hopper) == 128 && side(DType::f32, 129, 4096, hopper) == 0,
          "128");
    CHECK(side(DType::f64, 128, 4096, hopper) == 0, "float64 tiles of 128 exceed shared memory");
    CHECK(side(DType::f32, 128, 4096, ampere) == 0, "so do those of float32 before Hopper");

    const Product f64 = lower_product(DType::f64, 4096);
    CHECK(cuda::copies_in_bulk(f64, cuda::choose(f64, hopper), hopper), "bulk");
    CHECK(!cuda::copies_in_bulk(f64, cuda::choose(f64, ampere), ampere), "no copy engine");

    // What is forced is chosen, except what the device cannot do.
    cuda::force(0, 8, 3, 4);
    const Config forced = cuda::choose(lower_product(DType::f32, 8192), hopper);
    CHECK(forced.tile == TileSize::Small && forced.split == 8 && forced.split_above == 3 &&
              forced.group == 4,
          "forced");
    CHECK(cuda::choose(lower_product(DType::f32, 8192), ampere).split == 1, "no clusters");
    cuda::force(-1, -1, -1, -1);

    CHECK(
        cuda::explain(lower_product(DType::f32, 1024), hopper).find("64 x 64") != std::string::npos,
        "explain");
    std::puts("config: ok");
}
