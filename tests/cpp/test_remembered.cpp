// What is remembered of products is what would be chosen again, also where they share an entry.
#include <vector>

#include "problems.h"

using cuda::Device;

namespace {

bool is_as_chosen(const Product& p, const Device& device) {
    for (const bool scratch : {false, true})
        if (!(cuda::remembered_choice(p, device, scratch) == cuda::choose(p, device, scratch)))
            return false;
    return true;
}

// Products of every type, of more sizes than there are entries, with and without aligned rows.
std::vector<Product> products() {
    alignas(16) static const char memory[32] = {};
    std::vector<Product> all;
    for (const DType dtype :
         {DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128})
        for (const int64_t n : {1, 16, 63, 64, 100, 128, 256, 320, 500, 512, 768, 1000, 1024, 1536,
                                2048, 3072, 4096, 8192, 50000})
            for (const int64_t batch : {1, 64}) {
                Product p = lower_product(dtype, n, batch);
                all.push_back(p);
                p.b = p.a;
                all.push_back(p);
                p = times_dense(dtype, n, batch);
                all.push_back(p);
                p.b.data = memory + element_size(dtype);
                all.push_back(p);
                p.b.data = memory;
                p.a.kind = Kind::Symmetric;
                all.push_back(p);
                p.n = p.b.cols = p.b.row_stride = p.c.row_stride = 100;
                all.push_back(p);
                p.tf32 = true;
                all.push_back(p);
            }
    return all;
}

}  // namespace

int main() {
    const std::vector<Product> all = products();
    for (int round = 0; round < 2; ++round)
        for (const Product& p : all)
            for (const Device* device : {&h100, &ampere, &h100})
                CHECK(is_as_chosen(p, *device), "n=%lld", (long long)p.k);
    int wins[] = {0, 0};
    for (const Product& any : all) {
        Product p = any;
        p.tf32 = p.dtype == DType::f32;
        for (const int together : {1, 2, 1}) {
            const bool win = cuda::tf32_tiles_win(p, h100, together);
            CHECK(cuda::remembered_tf32_tiles(p, h100, together) == win, "n=%lld, %d together",
                  (long long)p.k, together);
            wins[together - 1] += win;
        }
    }
    CHECK(wins[1] > 0 && wins[0] > 2 * wins[1], "all alike");

    // What is forced counts at once, and no longer than it is.
    const Product p = lower_product(DType::f32, 1024);
    const Config free = cuda::remembered_choice(p, h100, true);
    cuda::force(static_cast<int>(Method::Direct), 0, 1, 1, 1);
    CHECK(is_as_chosen(p, h100), "forced");
    CHECK(!(cuda::remembered_choice(p, h100, true) == free), "forced");
    cuda::force(-1, -1, -1, -1, -1);
    CHECK(cuda::remembered_choice(p, h100, true) == free, "no longer forced");
    std::puts("remembered: ok");
}
