// The least a unit check needs: a condition that stays on in release builds and says what failed.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition, ...)                                           \
    do {                                                                \
        if (!(condition)) {                                             \
            std::printf("%s:%d: %s; ", __FILE__, __LINE__, #condition); \
            std::printf(__VA_ARGS__);                                   \
            std::printf("\n");                                          \
            std::exit(1);                                               \
        }                                                               \
    } while (0)
