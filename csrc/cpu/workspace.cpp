#include "workspace.h"

#include <cstdlib>
#include <new>

namespace packedtri::cpu {
namespace {

constexpr size_t page = 4096;

struct Buffer {
    void* data = nullptr;
    size_t size = 0;
    ~Buffer() { std::free(data); }

    void grow(size_t bytes) {
        std::free(data);
        size = 0;
        bytes = (bytes + page - 1) / page * page;
        data = std::aligned_alloc(page, bytes);
        if (!data) throw std::bad_alloc();
        size = bytes;
    }
};

}  // namespace

void* workspace(size_t bytes) {
    thread_local Buffer buffer;
    if (buffer.size < bytes) buffer.grow(bytes);
    return buffer.data;
}

}  // namespace packedtri::cpu
