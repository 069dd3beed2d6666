// How a packed matrix is multiplied by one vector. The limits are from the timings in benchmarks/shares, and a test compares
// them.
#include "choice.h"
#include "mv_held_layout.h"

namespace packedtri::cuda {
namespace {

using Way = MvChoice::Way;

// Of sums over rows of memory. Blocks of few rows are spread over the device until that is full.
MvChoice by_rows(const Product& p) {
    const int size = element_size(p.dtype);
    const int64_t n = p.k;
    // In how large batches whole rows a warp are faster: of elements of 2 bytes sooner.
    const int64_t many = size == 2 ? 12 : size == 4 ? 5 : p.dtype == DType::c64 ? 20 : 10;
    const bool can = n <= 512 && n * p.batch <= INT32_MAX;
    const bool pays =
        size == 16 ? n * p.batch >= 3000 : n <= 64 || (p.batch * many > n && p.batch > 1);
    if (can && pays) return {Way::Rows};
    // Four warps read the longest rows at once, or eight do.
    const bool eight = size == 2   ? n > 900 && n <= 7000
                       : size == 4 ? n > 800
                       : size == 8 ? n > 400 && n <= 1536
                                   : n > 300;
    return {Way::Groups, 4, p.batch == 1 && eight ? 8 : 4};
}

MvChoice by_columns(const Product& p) {
    const int size = element_size(p.dtype);
    const int64_t n = p.k, eights = ceil_div(n, 8) * p.batch;
    if (n <= 64 ? p.batch >= 500 : ceil_div(n, 64) * p.batch > (size == 16 ? 250 : 900))
        return {Way::Columns};
    if (p.batch > 1 && eights > 280) return {Way::Groups, 32, n >= 512 && eights <= 1100 ? 16 : 8};
    if (n <= 256) return {Way::Groups, 8, 8};
    if (n <= (size == 2 ? 1400 : 1600) || size == 16) return {Way::Groups, 8, 16};
    return {Way::Groups, n <= (size == 2 ? 4600 : 6500) ? 16 : 32, 16};
}

// Of symmetric matrices, for both halves of which the triangle is read, the second time from the L2 cache, as long as that
// holds it. To put parts of sums together is a launch of its own.
MvChoice by_both(const Product& p, bool scratch) {
    const bool halves = element_size(p.dtype) == 2;
    const int64_t n = p.k, rows = n * p.batch;
    const bool tiny = n <= 32 && (p.batch > 8 || n <= 16 || halves);
    if (tiny || (n <= 128 && p.batch >= (n <= 66 ? 50 : 128))) return {Way::Block};
    const bool cached = n <= (element_size(p.dtype) == 8 ? 1700 : 2300) &&
                        rows <= (n <= MV_SMALL_SYMMETRIC ? 17000 : 10000);
    if (cached && (p.batch == 1 || n < 700 || rows <= 2300)) {
        const bool one = p.batch == 1, long_sums = element_size(p.dtype) == 8 && n > 1100;
        if (rows <= (halves ? 700 : 400)) return {Way::Groups, 4, 4};
        if (one ? !long_sums : rows <= 1000 && n >= 100) return {Way::Groups, 8, 8};
        return {Way::Groups, one || (rows <= 2300 && n >= 200) ? 16 : 32, 8};
    }
    if (n <= MV_SMALL_SYMMETRIC) return {Way::Block};
    // Batches are the second dimension of a grid.
    if (scratch && p.batch <= 65535) return {Way::Parts};
    return {Way::Groups, 32, 8};
}

// Whether a matrix is better off in shared memory. It comes as one stream, but to one multiprocessor, so that only small
// ones are where the others are idle.
bool is_held(const Product& p, Kind kind) {
    const int size = element_size(p.dtype);
    const int64_t n = p.k;
    const auto from = [&](int64_t two, int64_t four, int64_t eight, int64_t sixteen) {
        return p.batch >= (size == 2 ? two : size == 4 ? four : size == 8 ? eight : sixteen);
    };
    if (n < 16) return false;
    if (kind == Kind::Symmetric) {
        if (n <= 32) return n * p.batch >= 6000;
        if (n <= 64) return from(1, 6, 14, 50);
        if (n <= 128) return from(12, 12, 24, 56);
        return from(24, 24, 24, 32);
    }
    if (kind == Kind::Lower) {
        if (n <= 32) return n * p.batch >= 12000;
        if (n <= 64) return from(256, 256, 400, 128);
        if (n <= 128) return from(40, 40, 100, 128);
        return from(24, 24, 64, 128);
    }
    if (n <= 32) return false;
    return n <= 64 ? p.batch >= 200 : from(110, 110, 110, 1000);
}

// Rows of up to four blocks have a thread for each, so that none has more to do than another, longer ones three or two, as
// many as a block of threads has room for. So many matrices that they fill the device have one.
MvChoice held(const Product& p) {
    const int64_t n = p.k;
    if (n <= 32) return {Way::Held, p.batch > 1 ? 2 : 1, 1};
    if (n <= 64) return {Way::Held, 1, 2};
    if (n <= 128) return {Way::Held, 1, p.batch > 1000 ? 1 : n <= 96 ? 3 : 4};
    return {Way::Held, 1, n <= 224 ? 3 : 2};
}

}  // namespace

MvChoice choose_mv(const Product& p, const Device& device, bool scratch) {
    // By tests.
    if (is_forced(Method::Vector) && forced.tile >= 0)
        return {static_cast<Way>(forced.tile.load()), forced.group, forced.split};
    const Kind kind = has_symmetric(p)     ? Kind::Symmetric
                      : sums_along_rows(p) ? Kind::Lower
                                           : Kind::Upper;
    if (const MvChoice choice = held(p);
        is_held(p, kind) && mv_held_can(p, device, choice.group, choice.sharers))
        return choice;
    if (kind == Kind::Symmetric) return by_both(p, scratch);
    return kind == Kind::Lower ? by_rows(p) : by_columns(p);
}

}  // namespace packedtri::cuda
