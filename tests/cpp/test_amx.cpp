// Products of bfloat16 by AMX, whose instructions are emulated, of integers that are summed exactly.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "emulated_amx.h"

#define PACKEDTRI_PAIRS_AMX
#include "cpu/mm_tile.cpp"
#include "cpu/workspace.cpp"

using namespace packedtri;

const std::string& cpu::wanted_isa() {
    static const std::string none;
    return none;
}

// What other elements than bfloat16 are left to.
void cpu::avx512::mm_tile(const Product&, int64_t, const Tile&) { std::abort(); }

namespace {

std::mt19937 generator(1);

// The stored elements of a matrix, and how they are read; a dense one by rows or by columns.
struct Matrix {
    Kind kind;
    int64_t rows, cols;
    bool by_columns;
    std::vector<uint16_t> stored;

    Matrix(Kind kind, int64_t rows, int64_t cols, bool by_columns)
        : kind(kind), rows(rows), cols(cols), by_columns(by_columns),
          stored(kind == Kind::Dense ? rows * cols : row_start(rows)) {
        for (uint16_t& x : stored) {
            const float number = static_cast<float>(static_cast<int>(generator() % 9) - 4);
            x = static_cast<uint16_t>(emulated::read<uint32_t>(&number) >> 16);
        }
    }
    Operand operand() const {
        if (kind != Kind::Dense) return {stored.data(), kind, rows, cols, 0, 0, 0};
        if (by_columns) return {stored.data(), kind, rows, cols, 1, rows, 0};
        return {stored.data(), kind, rows, cols, cols, 1, 0};
    }
    float at(int64_t i, int64_t j) const {
        if (kind == Kind::Dense)
            return emulated::widen(stored[by_columns ? j * rows + i : i * cols + j]);
        if ((kind == Kind::Upper && j >= i) || (kind == Kind::Symmetric && j > i)) std::swap(i, j);
        else if (kind == Kind::Upper ? j < i : j > i) return 0;
        return emulated::widen(stored[row_start(i) + j]);
    }
};

void check(const Matrix& a, const Matrix& b, Kind kind) {
    const bool packed = kind == Kind::Lower;
    std::vector<uint16_t> c(packed ? row_start(a.rows) : a.rows * b.cols, 0xffff);
    Product p{};
    p.dtype = DType::bf16;
    p.m = a.rows;
    p.n = b.cols;
    p.k = a.cols;
    p.batch = 1;
    p.a = a.operand();
    p.b = b.operand();
    p.c = {c.data(), kind, p.n, 0};
    constexpr int64_t tile_rows = 64, tile_cols = 96;
    for (int64_t i = 0; i < p.m; i += tile_rows)
        for (int64_t j = 0; j < p.n; j += tile_cols) {
            const cpu::Tile tile{i, std::min(i + tile_rows, p.m), j, std::min(j + tile_cols, p.n)};
            if (!packed || tile.j0 < tile.i1) cpu::PACKEDTRI_ISA::mm_tile(p, 0, tile);
        }
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < (packed ? i + 1 : p.n); ++j) {
            float sum = 0;
            for (int64_t k = 0; k < p.k; ++k) sum += a.at(i, k) * b.at(k, j);
            const float got = emulated::widen(c[packed ? row_start(i) + j : i * p.n + j]);
            // A result has 8 bits.
            CHECK(std::abs(got - sum) <= std::abs(sum) / 256,
                  "kinds %d and %d of order %d beside %d, element (%d, %d): %g instead of %g",
                  static_cast<int>(a.kind), static_cast<int>(b.kind), static_cast<int>(p.k),
                  static_cast<int>(p.n), static_cast<int>(i), static_cast<int>(j), got, sum);
        }
}

}  // namespace

int main() {
    // What panels do not write would show.
    constexpr size_t poisoned = 16 << 20;
    std::memset(cpu::workspace(poisoned), 0xff, poisoned);
    constexpr Kind kinds[] = {Kind::Lower, Kind::Upper, Kind::Symmetric, Kind::Dense};
    for (const int64_t n : {17, 31, 32, 33, 65, 100, 129, 300})
        for (const Kind a : kinds)
            for (const Kind b : kinds)
                for (const bool by_columns : {false, true})
                    for (const int64_t m : {n, int64_t{20}, int64_t{70}}) {
                        const bool dense_a = a == Kind::Dense, dense_b = b == Kind::Dense;
                        if (m != n && dense_a == dense_b) continue;
                        if (by_columns && !dense_a && !dense_b) continue;
                        const Matrix left(a, dense_a && !dense_b ? m : n, n, by_columns),
                            right(b, n, dense_b && !dense_a ? m : n, by_columns);
                        check(left, right, Kind::Dense);
                        if (m == n) check(left, right, Kind::Lower);
                    }
    std::printf("amx: ok\n");
}
