// The vector registers of the instruction set that this file is compiled for.
#pragma once

namespace packedtri::cpu::PACKEDTRI_ISA {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
constexpr int vector_count = 32;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
constexpr int vector_count = 16;
#elif defined(__aarch64__)
constexpr int vector_bytes = 16;
constexpr int vector_count = 32;
#else
constexpr int vector_bytes = 16;
constexpr int vector_count = 16;
#endif

template <class R>
struct Vector {
    typedef R type __attribute__((vector_size(vector_bytes), may_alias));
    static constexpr int lanes = vector_bytes / static_cast<int>(sizeof(R));
};

}  // namespace packedtri::cpu::PACKEDTRI_ISA
