// Between dense and packed storage: sharing rows of the triangle among threads.
#include "../index.h"
#include "isa.h"
#include "kernels.h"
#include "tasks.h"

namespace packedtri::cpu {
namespace {

// As many elements as move in about ten microseconds, so that a thread is worth its start.
constexpr int64_t task_elements = 1 << 16;

using Rows = void (*)(const Conversion& c, int64_t batch, int64_t begin, int64_t end);

// Large triangles are cut into strips of rows with equal shares, small ones are grouped.
void convert(const Conversion& c, const Threads& threads, Rows rows) {
    const int64_t area = row_start(c.n);
    const int64_t strips = ceil_div(area, task_elements);
    const int64_t group = std::max<int64_t>(1, task_elements / area);
    const auto boundary = [&](int64_t s) {
        return s == strips ? c.n : row_of(area * s / strips) / 32 * 32;
    };
    for_each_task(threads, ceil_div(c.batch, group) * strips, [&](int64_t t) {
        const int64_t begin = boundary(t % strips), end = boundary(t % strips + 1);
        const int64_t first = t / strips * group, last = std::min(first + group, c.batch);
        for (int64_t b = first; b < last; ++b) rows(c, b, begin, end);
    });
}

}  // namespace

void pack(const Conversion& c, const Threads& threads) { convert(c, threads, kernels().pack); }

void unpack(const Conversion& c, const Threads& threads) { convert(c, threads, kernels().unpack); }

}  // namespace packedtri::cpu
