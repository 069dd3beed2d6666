// The instructions of AMX that products of bfloat16 have, emulated: their code can be run where no machine has them. Included
// before that code, which is compiled with PACKEDTRI_PAIRS_AMX defined.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace emulated {

inline unsigned char tiles[8][16][64];

template <class T>
T read(const void* from) {
    T x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
inline float widen(uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    return read<float>(&wide);
}

inline void zero(int tile) { std::memset(tiles[tile], 0, sizeof tiles[tile]); }
inline void load(int tile, const void* from, long stride) {
    for (int r = 0; r < 16; ++r)
        std::memcpy(tiles[tile][r], static_cast<const char*>(from) + r * stride, 64);
}
inline void store(int tile, void* to, long stride) {
    for (int r = 0; r < 16; ++r)
        std::memcpy(static_cast<char*>(to) + r * stride, tiles[tile][r], 64);
}
// c += a b, of pairs along k: those of a row of a, and those of a column of b.
inline void multiply(int c, int a, int b) {
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j) {
            auto sum = read<float>(&tiles[c][i][4 * j]);
            for (int pair = 0; pair < 16; ++pair)
                for (int x = 0; x < 4; x += 2)
                    sum += widen(read<uint16_t>(&tiles[a][i][4 * pair + x])) *
                           widen(read<uint16_t>(&tiles[b][pair][4 * j + x]));
            std::memcpy(&tiles[c][i][4 * j], &sum, sizeof sum);
        }
}

}  // namespace emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) static_cast<void>(config)
#define _tile_release() static_cast<void>(0)
#define _tile_zero emulated::zero
#define _tile_loadd emulated::load
#define _tile_stored emulated::store
#define _tile_dpbf16ps emulated::multiply
