// Between dense and packed storage, and from one triangle to another: sharing rows among threads.
#include "../index.h"
#include "isa.h"
#include "kernels.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

// As many elements as move in about ten microseconds, so that a thread is worth its start.
constexpr int64_t task_elements = 1 << 16;

// Calls rows(b, begin, end) for strips of the rows of each matrix of a batch: large ones of `area` elements are cut
// into strips with equal shares, small ones are grouped. boundary(s, strips) is where strip s begins.
template <class Boundary, class Rows>
void for_each_strip(const Threads& threads, int64_t batch, int64_t area, const Boundary& boundary,
                    const Rows& rows) {
    const int64_t strips = ceil_div(area, task_elements);
    const int64_t group = std::max<int64_t>(1, task_elements / area);
    for_each_task(threads, ceil_div(batch, group) * strips, [&](int64_t t) {
        const int64_t begin = boundary(t % strips, strips), end = boundary(t % strips + 1, strips);
        const int64_t first = t / strips * group, last = std::min(first + group, batch);
        for (int64_t b = first; b < last; ++b) rows(b, begin, end);
    });
}

template <class Rows>
void for_each_strip_of_triangle(const Threads& threads, int64_t batch, int64_t n,
                                const Rows& rows) {
    const int64_t area = row_start(n);
    const auto boundary = [&](int64_t s, int64_t strips) {
        return s == strips ? n : aligned(row_of(share_before(area, s, strips)));
    };
    for_each_strip(threads, batch, area, boundary, rows);
}

}  // namespace

void pack(const Conversion& c, const Threads& threads) {
    for_each_strip_of_triangle(threads, c.batch, c.n, [&](int64_t b, int64_t begin, int64_t end) {
        kernels().pack(c, b, begin, end);
    });
}

void unpack(const Conversion& c, const Threads& threads) {
    for_each_strip_of_triangle(threads, c.batch, c.n, [&](int64_t b, int64_t begin, int64_t end) {
        kernels().unpack(c, b, begin, end);
    });
}

void pack_block(const BlockConversion& c, const Threads& threads) {
    for_each_strip_of_triangle(
        threads, c.whole.batch, c.whole.n,
        [&](int64_t b, int64_t begin, int64_t end) { kernels().pack_block(c, b, begin, end); });
}

void unpack_block(const BlockConversion& c, const Threads& threads) {
    const int64_t bottom = c.top + c.rows;
    const auto boundary = [&](int64_t s, int64_t strips) {
        return s == strips ? bottom
                           : std::max(c.top, aligned(c.top + share_before(c.rows, s, strips)));
    };
    for_each_strip(
        threads, c.whole.batch, c.rows * c.cols, boundary,
        [&](int64_t b, int64_t begin, int64_t end) { kernels().unpack_block(c, b, begin, end); });
}

void scale_band(const BandScale& p, const Threads& threads) {
    for_each_strip_of_triangle(threads, p.batch, p.n, [&](int64_t b, int64_t begin, int64_t end) {
        kernels().scale_band(p, b, begin, end);
    });
}

}  // namespace packedtri::cpu
