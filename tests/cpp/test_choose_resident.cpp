// Which batches have their packed operand in shared memory as a whole, and what a block has of them.
#include "named_products.h"

const DType dtypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};

Config chosen(const char* op, DType dtype, int64_t n, int64_t m, int64_t batch,
              const cuda::Device& device = h100) {
    const Product p = batched_product(op, dtype, n, m, batch);
    const Config c = cuda::choose(p, device);
    CHECK(c.method != Method::Resident || !cuda::leaves_to_dense(p, device), "twice");
    return c;
}
bool resident(const char* op, DType dtype, int64_t n, int64_t m, int64_t batch,
              const cuda::Device& device = h100) {
    return chosen(op, dtype, n, m, batch, device).method == Method::Resident;
}

void batches() {
    for (const DType dtype : dtypes) {
        // Larger matrices of 16-bit elements have images in shared memory.
        const bool halves = element_size(dtype) == 2;
        const int64_t n = halves ? 32 : 64;
        CHECK(resident("L@dense", dtype, n, n, 1024) && resident("S@dense", dtype, n, n, 1024),
              "%d", (int)dtype);
        CHECK(!resident("L@dense", dtype, n, n, 64) && !resident("L@dense", dtype, n, n, 1),
              "few matrices");
        CHECK(!resident("L@L", dtype, n, n, 1024) && !resident("S@S", dtype, n, n, 1024),
              "two packed operands");
        CHECK(!resident("L@dense", dtype, n, n, 1024, ampere), "no bulk copies");
        CHECK(resident("L@dense", dtype, n, n, 1024, hopper) == halves, "doubles are slow");
        CHECK(resident("dense@L", dtype, n, n, 1024) != halves, "to the right");
        CHECK(!resident("dense@S", dtype, n, n, 1024) && !resident("dense@L", dtype, 64, 16, 1024),
              "to the right, not timed");
        CHECK(!resident("L@dense", dtype, 64, 1, 1024), "vectors have a kernel of their own");
        CHECK(!resident("L@dense", dtype, 500, 500, 1024), "too large for shared memory");
    }
    CHECK(resident("L@dense", DType::f32, 320, 320, 1024) &&
              !resident("L@dense", DType::f64, 320, 320, 1024),
          "as large as shared memory allows");
    CHECK(!resident("L@dense", DType::bf16, 65, 65, 1024) &&
              resident("L@dense", DType::bf16, 65, 16, 1024),
          "rows of 16-bit elements that are not aligned");
    CHECK(!resident("L@dense", DType::f32, 49, 49, 1024) &&
              resident("L@dense", DType::f32, 48, 48, 1024) &&
              resident("L@dense", DType::f32, 65, 65, 1024),
          "rows that are not aligned");
    CHECK(resident("S@dense", DType::f32, 128, 256, 1024) &&
              !resident("S@dense", DType::f32, 128, 512, 1024) &&
              resident("L@dense", DType::f32, 128, 512, 1024),
          "clearly more vectors");
    CHECK(!resident("dense@L", DType::f32, 24, 24, 1024) &&
              resident("dense@L", DType::f32, 24, 48, 1024),
          "work for all warps");
    CHECK(resident("S@dense", DType::c128, 12, 36, 1024), "small orders all the same");
    CHECK(!resident("L@dense", DType::f64, 128, 128, 1024) &&
              resident("L@dense", DType::f64, 129, 129, 1024),
          "where large tiles are full blocks go from tile to tile");
    Product p = batched_product("S@dense", DType::f32, 64, 64, 1024);
    p.tf32 = true;
    CHECK(cuda::choose(p, h100).method != Method::Resident, "TF32");
    p = batched_product("S@dense", DType::f32, 64, 64, 1024);
    p.beta = 1;
    CHECK(cuda::choose(p, h100).method != Method::Resident, "sums into what is there");
    p = batched_product("S@dense", DType::f32, 64, 64, 1024);
    p.b.row_stride = int64_t{1} << 30;
    CHECK(cuda::choose(p, h100).method != Method::Resident, "counted in 32 bits");
}

// No block has more matrices than there are, more than shared memory holds, or warps without work.
void blocks() {
    for (const DType dtype : dtypes)
        for (const int64_t batch : {100, 264, 1024, 5000})
            for (const int64_t n : {17, 40, 64, 100, 160})
                for (const int64_t m : {2, 16, 64, 200}) {
                    const Product p = batched_product("L@dense", dtype, n, m, batch);
                    const Config c = cuda::choose_resident(p, h100);
                    CHECK(c.group >= 1 && c.group * cuda::resident_bytes(p) <= 226 * 1024, "room");
                    CHECK(c.split >= 4 && c.split <= cuda::resident_warps(dtype), "warps");
                    CHECK(c.split == 4 || cuda::resident_tasks(p, c.tile) * c.group > c.split - 4,
                          "idle warps");
                }
    const Config small = chosen("L@dense", DType::f32, 24, 24, 1024),
                 large = chosen("L@dense", DType::f32, 200, 200, 1024);
    CHECK(small.group == 4 && small.split == 8, "small ones together");
    CHECK(large.group == 1 && large.split == 12 && large.tile == TileSize::Large, "a large one");
    const std::string text =
        cuda::explain(batched_product("S@dense", DType::f32, 24, 24, 1024), h100);
    CHECK(text == "packed operand in shared memory, 8 warps for 4 matrices", "%s", text.c_str());
}

int main() {
    batches();
    blocks();
    std::puts("choose_resident: ok");
}
