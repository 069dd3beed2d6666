// Which batches of 16-bit products have images of their packed operands in shared memory, and what a block has there.
#include "named_products.h"

const char* const packed_pairs[] = {"L@L-packed", "L@U-packed", "S@S-packed", "L@U", "L@S", "S@S"};
const char* const beside_dense[] = {"L@dense", "U@dense", "dense@L", "S@dense", "dense@S"};

bool chosen(const Product& p, const cuda::Device& device = h100) {
    const bool images = cuda::choose(p, device).method == Method::SharedImages;
    CHECK(!images || !cuda::leaves_to_dense(p, device), "twice");
    return images;
}
bool chosen(const char* op, int64_t n, int64_t m, int64_t batch, DType dtype = DType::bf16,
            const cuda::Device& device = h100) {
    return chosen(batched_product(op, dtype, n, m, batch), device);
}

void batches() {
    for (const char* op : packed_pairs) {
        for (const int64_t n : {40, 64, 96, 128, 192, 256})
            CHECK(chosen(op, n, n, 1024) && chosen(op, n, n, 1024, DType::f16), "%s", op);
        CHECK(!chosen(op, 257, 257, 1024) && !chosen(op, 264, 264, 1024), "no room");
        CHECK(!chosen(op, 32, 32, 1024) && !chosen(op, 128, 128, 16), "%s", op);
        CHECK(!chosen(op, 128, 128, 1024, DType::f32), "float32");
        CHECK(!chosen(op, 128, 128, 1024, DType::bf16, ampere), "no such tensor cores");
        CHECK(chosen(op, 128, 128, 1024, DType::bf16, hopper), "doubles are not needed");
        const std::string name = op;
        const bool packed = name.find("-packed") != std::string::npos;
        CHECK(chosen(op, 97, 97, 1024) == packed, "dense results want aligned rows");
    }
    for (const char* op : beside_dense) {
        for (const int64_t n : {40, 96, 200, 256})
            CHECK(chosen(op, n, n, 1024) && chosen(op, n, 512, 1024), "%s", op);
        CHECK(!chosen(op, 97, 97, 1024), "rows that are not aligned");
        CHECK(!chosen(op, 64, 16, 1024) && chosen(op, 128, 16, 1024), "few vectors");
        CHECK(!chosen(op, 128, 1, 1024), "vectors have a kernel of their own");
    }
    CHECK(chosen("L@dense", 200, 200, 62) && !chosen("L@dense", 200, 200, 61), "few matrices");
    CHECK(!chosen("S@dense", 200, 200, 98) && chosen("S@dense", 200, 200, 99), "some matrices");
    CHECK(!chosen("L@L-packed", 48, 48, 199) && chosen("L@L-packed", 48, 48, 200), "of order 48");
    CHECK(chosen("L@dense", 64, 16, 499) && !chosen("L@dense", 64, 16, 500), "few vectors");
    CHECK(!chosen("L@dense", 128, 136, 64) && !chosen("L@dense", 128, 520, 1024),
          "more vectors than were timed");
    Product p = batched_product("L@dense", DType::bf16, 128, 128, 1024);
    p.beta = 1;
    CHECK(!chosen(p), "sums into what is there");
    p = batched_product("L@dense", DType::bf16, 128, 128, 1024);
    p.c.row_stride = 129;
    CHECK(!chosen(p), "a result whose rows are not aligned");
    p = batched_product("L@U", DType::bf16, 97, 97, 1024);
    p.c.row_stride = 104;
    p.c.batch_stride = 97 * 104;
    CHECK(!chosen(p), "rows that end within a word");
    p = batched_product("L@L-packed", DType::bf16, 128, 128, 1024);
    p.b.strict = true;
    CHECK(!chosen(p), "a strict triangle");
}

// All that a block has is in its shared memory, each in a place of its own.
void layouts() {
    const auto check = [](const char* op, int64_t n, int64_t m) {
        const Product p = batched_product(op, DType::bf16, n, m, 1024);
        const Config c = cuda::choose_shared_images(p);
        const auto x = cuda::shared_images_layout(p, h100, c.group);
        CHECK(x.bytes() <= 227 * 1024, "%s %d: %d bytes", op, (int)n, x.bytes());
        CHECK(64 * x.side >= n && 64 * (x.side - 1) < n, "blocks");
        CHECK(x.raw_bytes >= 2 * (row_start(n) + 8 + 64), "with what is read beyond");
        CHECK((x.panels > 0) == (x.slots > 0) && x.slots <= 2 * x.panels, "panels");
        CHECK(x.ring() % 1024 == 0 && x.raw() % 1024 == 0, "aligned blocks");
        CHECK(x.raw_bytes % 16 == 0 && x.staging_bytes % 16 == 0, "aligned words");
        const int staged = p.c.kind == Kind::Dense ? 4 * x.groups() * cuda::STAGED_TILE_BYTES
                                                   : static_cast<int>(2 * (row_start(n) + 8));
        CHECK((x.shares_staging() ? x.raw_bytes : x.staging_bytes) >= staged, "room to stage");
        CHECK(!x.shares_staging() || x.raw_slots == 1, "nothing is loaded while it is staged");
        return x;
    };
    for (int64_t n = 1; n <= 256; ++n) {
        for (const char* op : packed_pairs) check(op, n, n);
        for (const char* op : beside_dense)
            for (const int64_t m : {8, 64, 256, 1024}) check(op, n, m);
    }
    CHECK(check("L@L-packed", 192, 192).raw_slots == 2, "the next ones are under way");
    CHECK(check("L@L-packed", 256, 256).shares_staging(), "no room for that");
    CHECK(check("S@dense", 128, 128).slots >= 2, "the next panel is under way");
    Product p = batched_product("L@U", DType::bf16, 128, 128, 1024);
    p.b.data = p.a.data;
    CHECK(cuda::shared_images_layout(p, h100).operands == 1, "one image for both");
    const std::string text =
        cuda::explain(batched_product("L@L-packed", DType::bf16, 96, 96, 1024), h100);
    CHECK(text == "packed operands in shared memory, as tile images", "%s", text.c_str());
}

int main() {
    batches();
    layouts();
    std::puts("choose_shared_images: ok");
}
