// k_range against brute force: the terms that some element of a block of the result needs.
#include "krange.h"

#include "check.h"

using namespace packedtri;

// Whether element (i, j) of a matrix of this kind may be nonzero.
bool stored(Kind kind, int64_t i, int64_t j) {
    if (kind == Kind::Lower) return i >= j;
    if (kind == Kind::Upper) return i <= j;
    return true;
}

bool needed(Kind a, Kind b, int64_t i0, int64_t i1, int64_t j0, int64_t j1, int64_t k) {
    for (int64_t i = i0; i < i1; ++i)
        for (int64_t j = j0; j < j1; ++j)
            if (stored(a, i, k) && stored(b, k, j)) return true;
    return false;
}

void check_block(Kind a, Kind b, int64_t i0, int64_t i1, int64_t j0, int64_t j1, int64_t n) {
    const KRange r = k_range(a, b, i0, i1, j0, j1, n);
    int64_t count = 0;
    for (int64_t k = 0; k < n; ++k) {
        const bool inside = r.begin <= k && k < r.end;
        count += inside;
        CHECK(inside == needed(a, b, i0, i1, j0, j1, k),
              "kinds %d, %d, rows [%d, %d), columns [%d, %d), k = %d", (int)a, (int)b, (int)i0,
              (int)i1, (int)j0, (int)j1, (int)k);
    }
    CHECK(r.length() == count, "length %d for %d terms", (int)r.length(), (int)count);
    CHECK(r.begin >= 0 && (count == 0 || r.end <= n), "range leaves [0, %d)", (int)n);
}

int main() {
    const Kind kinds[] = {Kind::Lower, Kind::Upper, Kind::Symmetric, Kind::Dense};
    for (const Kind a : kinds)
        for (const Kind b : kinds)
            for (int64_t n = 1; n <= 7; ++n)
                for (int64_t i0 = 0; i0 < n; ++i0)
                    for (int64_t i1 = i0 + 1; i1 <= n; ++i1)
                        for (int64_t j0 = 0; j0 < n; ++j0)
                            for (int64_t j1 = j0 + 1; j1 <= n; ++j1)
                                check_block(a, b, i0, i1, j0, j1, n);
    // Tiles at the edge reach beyond the matrix; the range must not.
    for (const Kind a : kinds)
        for (const Kind b : kinds) {
            const KRange r = k_range(a, b, 4, 8, 4, 8, 5);
            CHECK(r.begin >= 0 && r.end <= 5, "kinds %d, %d: end %d", (int)a, (int)b, (int)r.end);
        }
    // The sum of lower by lower is j <= k <= i.
    static_assert(k_range(Kind::Lower, Kind::Lower, 5, 6, 2, 3, 9).begin == 2, "from j");
    static_assert(k_range(Kind::Lower, Kind::Lower, 5, 6, 2, 3, 9).end == 6, "to i");
    static_assert(k_range(Kind::Lower, Kind::Lower, 2, 3, 5, 6, 9).length() == 0, "above");
    std::puts("krange: ok");
}
