// Into which triangles solves and factorizations are cut.
#include "cuda/blocks.h"

#include <vector>

#include "check.h"

using namespace packedtri;
using cuda::Device;
using cuda::Leaves;

void cut(const Leaves& leaves, int64_t length, std::vector<int64_t>& found) {
    if (length <= leaves.most()) return found.push_back(length);
    const int64_t first = leaves.first_half(length);
    CHECK(first > 0 && first < length, "%d of %d", (int)first, (int)length);
    cut(leaves, first, found);
    cut(leaves, length - first, found);
}

// All but the last have one order, and no step is for less than what the last one may be larger by.
void every_length(const Leaves& leaves) {
    for (int64_t n = 1; n <= 2000; ++n) {
        std::vector<int64_t> found;
        cut(leaves, n, found);
        for (size_t x = 0; x + 1 < found.size(); ++x)
            CHECK(found[x] == leaves.order, "n = %d, leaf %d: %d", (int)n, (int)x, (int)found[x]);
        CHECK(found.back() <= leaves.most(), "n = %d: %d", (int)n, (int)found.back());
        CHECK(found.size() == 1 || found.back() > leaves.rest, "n = %d: %d", (int)n,
              (int)found.back());
    }
}

Leaves leaves(DType dtype, int64_t m, int64_t batch, int shared_kib = 227) {
    Solve p{};
    p.dtype = dtype;
    p.n = 1000;
    p.m = m;
    p.batch = batch;
    return cuda::solve_leaves(p, Device{132, true, shared_kib});
}

Factor factor(DType dtype, int64_t n, int64_t batch) {
    return {dtype, n, batch, nullptr, 0, nullptr};
}

void panels() {
    const auto order = [](DType dtype, int64_t n, int64_t batch) {
        return cuda::panel_order(factor(dtype, n, batch));
    };
    CHECK(order(DType::f32, 3000, 1) >= 3000, "all of a matrix");
    for (int64_t n : {5000, 8192, 30000}) {
        const int64_t columns = order(DType::f64, n, 1);
        CHECK(columns < n && columns % 64 == 0, "n = %d: panels of %d", (int)n, (int)columns);
    }
    CHECK(order(DType::f32, 2048, 16) < 2048, "large work");
    CHECK(order(DType::c64, 1024, 1) == 0 && order(DType::c128, 1024, 1) == 0, "complex ones");
    CHECK(order(DType::c128, 256, 32) > 0 && order(DType::c128, 4096, 1) >= 4096 &&
              order(DType::c128, 4096, 200) == 0,
          "many of them");

    const auto solve_order = [](DType dtype, int64_t n, int64_t m, int64_t batch = 1) {
        Solve solve{};
        solve.dtype = dtype;
        solve.x_kind = m > 0 ? Kind::Dense : Kind::Lower;
        solve.n = n;
        solve.m = m > 0 ? m : n;
        solve.batch = batch;
        return cuda::solve_panel_order(solve);
    };
    CHECK(solve_order(DType::f32, 1024, 1024) >= 1024, "a solve");
    CHECK(solve_order(DType::f32, 8192, 8192) == 512, "a large one");
    CHECK(solve_order(DType::f32, 384, 384, 32) == 2048, "a batch");
    for (DType dtype : {DType::f32, DType::f64, DType::c64, DType::c128}) {
        CHECK(solve_order(dtype, 4096, 16) == 0, "few right-hand sides");
        CHECK(solve_order(dtype, 384, 384) == 0 && solve_order(dtype, 384, 0) == 0,
              "a small triangle");
        CHECK(solve_order(dtype, 384, 0, 32) > 0 && solve_order(dtype, 4096, 0) > 0, "inverses");
        CHECK(solve_order(dtype, 2048, 2048) > 0, "many right-hand sides");
    }
    const Device device{132, true};
    CHECK(cuda::panel_blocks(1, 500, device, 100 << 10) == 1, "few items");
    CHECK(cuda::panel_blocks(1, 5000, device, 100 << 10) == 2, "many items");
    CHECK(cuda::panel_blocks(8, 500, device, 100 << 10) == 2, "a batch");
}

int main() {
    panels();
    for (const Leaves& x : {Leaves{64, 0}, Leaves{64, 16}, Leaves{128, 0}, Leaves{128, 16}})
        every_length(x);
    CHECK(leaves(DType::f32, 1000, 1).most() == 144, "float32");
    CHECK(leaves(DType::f32, 70, 67).most() == 128, "more blocks than multiprocessors");
    CHECK(leaves(DType::f32, 1000, 1, 99).most() == 128, "too little shared memory");
    CHECK(leaves(DType::f64, 1000, 1).most() == 144, "float64");
    CHECK(leaves(DType::f64, 70, 66).most() == 128, "as many, if each has 64 lines");
    CHECK(leaves(DType::f64, 70, 67).most() == 80, "more");
    CHECK(leaves(DType::c64, 1000, 1, 163).most() == 80, "little shared memory");
    CHECK(leaves(DType::c128, 1000, 1).most() == 64, "large elements");
    std::puts("blocks: ok");
}
