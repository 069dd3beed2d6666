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

int main() {
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
