// Identities of the index formulas: exhaustive for small triangles, at the edges of rows for large.
#include "index.h"

#include <cstdint>
#include <random>

#include "check.h"

using namespace packedtri;

static_assert(row_start(0) == 0 && row_start(1) == 1 && row_start(4) == 10, "row_start");
static_assert(offset(3, 2) == 8 && row_of(8) == 3, "usable in constant expressions");

// Row i, whose first and last element and both neighbours must be told apart.
void check_row(int64_t i) {
    const int64_t first = row_start(i), last = offset(i, i), x = i;
    CHECK(row_of(first) == i, "row %lld", (long long)x);
    CHECK(row_of(last) == i, "row %lld", (long long)x);
    CHECK(row_of(last + 1) == i + 1, "row %lld", (long long)x);
    if (i > 0) CHECK(row_of(first - 1) == i - 1, "row %lld", (long long)x);
    CHECK(last + 1 == row_start(i + 1), "row %lld", (long long)x);
}

void every_element_in_order() {
    int64_t position = 0;
    for (int64_t i = 0; i < 1500; ++i) {
        CHECK(row_start(i) == position, "row %lld", (long long)i);
        for (int64_t j = 0; j <= i; ++j, ++position) {
            CHECK(offset(i, j) == position, "(%lld, %lld)", (long long)i, (long long)j);
            CHECK(row_of(position) == i, "position %lld", (long long)position);
        }
    }
}

// Around each power of two of the row and of the position, and wherever float and double round.
void edges_of_large_rows() {
    for (int bit = 1; bit < 31; ++bit)
        for (int64_t d = -300; d <= 300; ++d) {
            const int64_t i = (int64_t{1} << bit) + d;
            if (i >= 0 && i < (int64_t{1} << 31) - 1) check_row(i);
        }
    std::mt19937_64 random(std::random_device{}());
    for (int trial = 0; trial < 200000; ++trial) {
        check_row(static_cast<int64_t>(random() % ((uint64_t{1} << 31) - 1)));
        const int64_t t = static_cast<int64_t>(random() >> (4 + random() % 40));  // Below 2^60.
        const int64_t i = row_of(t);
        CHECK(row_start(i) <= t && t < row_start(i + 1), "position %lld", (long long)t);
        CHECK(offset(i, t - row_start(i)) == t, "position %lld", (long long)t);
    }
    for (int bit = 0; bit <= 60; ++bit)
        for (int64_t d = -2; d <= 2; ++d) {
            const int64_t t = (int64_t{1} << bit) + d;
            if (t < 0) continue;
            const int64_t i = row_of(t);
            CHECK(row_start(i) <= t && t < row_start(i + 1), "position %lld", (long long)t);
        }
}

void ceil_div_covers() {
    for (int64_t a = 0; a < 200; ++a)
        for (int64_t b = 1; b < 20; ++b) {
            const int64_t q = ceil_div(a, b);
            CHECK(q * b >= a && (q - 1) * b < a, "%lld / %lld", (long long)a, (long long)b);
        }
}

int main() {
    every_element_in_order();
    edges_of_large_rows();
    ceil_div_covers();
    std::puts("index: ok");
}
