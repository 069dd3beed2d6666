#include "isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(PACKEDTRI_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels.h"

namespace packedtri::cpu {

// Each of these is table.cpp, compiled for one instruction set.
namespace portable {
extern const Kernels table;
}
#if defined(PACKEDTRI_X86)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif
#if defined(PACKEDTRI_AVX512_BF16)
namespace avx512_bf16 {
void mm_tile(const Product& p, int64_t batch, const Tile& tile);
}
#endif
#if defined(PACKEDTRI_AMX)
namespace amx {
void mm_tile(const Product& p, int64_t batch, const Tile& tile);
}
#endif

namespace {

struct Candidate {
    const Kernels* table;
    bool (*supported)();
};

#if defined(PACKEDTRI_X86)
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}
#endif

#if defined(PACKEDTRI_AVX512_BF16) || defined(PACKEDTRI_AMX)
// Those of AVX-512, but for products of bfloat16, by instructions that multiply pairs.
Kernels with_pairs(const char* name, void (*mm_tile)(const Product&, int64_t, const Tile&),
                   const PairTiles& pairs) {
    Kernels table = avx512::table;
    table.name = name;
    table.mm_tile = mm_tile;
    table.pairs = pairs;
    return table;
}
#endif

#if defined(PACKEDTRI_AVX512_BF16)
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

#if defined(PACKEDTRI_AMX)
// A process asks Linux for the registers of AMX before it first uses them.
bool may_use_tiles() {
#if defined(__linux__)
    constexpr long request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

bool has_amx() {
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    unsigned eax, ebx, ecx, edx;
    if (!has_avx512() || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
    return (edx & amx_bf16) && (edx & amx_tile) && may_use_tiles();
}
#endif

const Kernels& choose() {
#if defined(PACKEDTRI_AMX)
    static const Kernels amx_table = with_pairs("amx", amx::mm_tile, {32, {512, 1024}, 1500});
#endif
#if defined(PACKEDTRI_AVX512_BF16)
    static const Kernels bf16_table =
        with_pairs("avx512_bf16", avx512_bf16::mm_tile, {32, {256, 512}, 450});
#endif
    const Candidate candidates[] = {
#if defined(PACKEDTRI_AMX)
        {&amx_table, has_amx},
#endif
#if defined(PACKEDTRI_AVX512_BF16)
        {&bf16_table, has_avx512_bf16},
#endif
#if defined(PACKEDTRI_X86)
        {&avx512::table, has_avx512},
        {&avx2::table, has_avx2},
#endif
        {&portable::table, [] { return true; }},
    };
    // Only what is wanted is asked for: AMX changes the process, whose signal stacks must be larger then.
    const std::string& wanted = wanted_isa();
    for (const Candidate& c : candidates)
        if ((wanted.empty() || c.table->name == wanted) && c.supported()) return *c.table;
    std::string usable;
    for (const Candidate& c : candidates)
        if (c.supported()) usable += (usable.empty() ? "" : ", ") + std::string(c.table->name);
    throw std::runtime_error("[packedtri] PACKEDTRI_CPU_ISA=" + wanted +
                             " names no instruction set of this machine; expected one of " +
                             usable);
}

}  // namespace

const std::string& wanted_isa() {
    // Read once: other threads may change the environment.
    static const std::string wanted = [] {
        const char* name = std::getenv("PACKEDTRI_CPU_ISA");
        return std::string(name ? name : "");
    }();
    return wanted;
}

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

const char* isa() {
    try {
        return kernels().name;
    } catch (const std::runtime_error& error) {
        static const std::string message = error.what();
        return message.c_str();
    }
}

}  // namespace packedtri::cpu
