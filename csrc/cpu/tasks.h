// Sharing independent tasks among the caller's threads.
#pragma once

#include <algorithm>
#include <atomic>

#include "kernels.h"

namespace packedtri::cpu {

// Calls task(t) once for each t in [0, count). A thread takes the next t when it has finished its
// last, so a thread that the system delays takes fewer. Tasks must not depend on each other.
template <class Task>
void for_each_task(const Threads& threads, int64_t count, const Task& task) {
    struct Context {
        const Task& task;
        int64_t count;
        std::atomic<int64_t> next;
    } context{task, count, {0}};
    const auto body = [](int, void* opaque) {
        Context& c = *static_cast<Context*>(opaque);
        for (int64_t t; (t = c.next.fetch_add(1, std::memory_order_relaxed)) < c.count;) c.task(t);
    };
    const int workers = static_cast<int>(std::min<int64_t>(threads.count, count));
    if (workers <= 1) {
        body(0, &context);
    } else {
        threads.run(workers, body, &context);
    }
}

// The same for runs [begin, end) of many small tasks: a thread takes as many at a time as take about
// ten microseconds, with `cost` the multiplications of one.
template <class Run>
void for_each_run(const Threads& threads, int64_t count, int64_t cost, const Run& run) {
    constexpr int64_t worth_taking = 1 << 18, overhead = 1000;
    const int64_t size = std::max<int64_t>(1, worth_taking / (cost + overhead));
    for_each_task(threads, (count + size - 1) / size,
                  [&](int64_t g) { run(g * size, std::min((g + 1) * size, count)); });
}

// The same for each of them.
template <class Task>
void for_each_group(const Threads& threads, int64_t count, int64_t cost, const Task& task) {
    for_each_run(threads, count, cost, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) task(t);
    });
}

}  // namespace packedtri::cpu
