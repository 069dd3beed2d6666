// Scratch memory that a thread keeps between calls.
#pragma once

#include <cstddef>

namespace packedtri::cpu {

// At least `bytes` bytes, aligned to a page, private to the calling thread and valid until its next
// call. The memory only grows and is reused, because touching fresh pages on every call would cost
// as much as the arithmetic on them.
void* workspace(size_t bytes);

}  // namespace packedtri::cpu
