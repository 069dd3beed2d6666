#include "isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

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

namespace {

struct Candidate {
    const Kernels* table;
    bool supported;
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

const Kernels& choose() {
    const Candidate candidates[] = {
#if defined(PACKEDTRI_X86)
        {&avx512::table, has_avx512()},
        {&avx2::table, has_avx2()},
#endif
        {&portable::table, true},
    };
    const char* wanted = std::getenv("PACKEDTRI_CPU_ISA");
    std::string usable;
    for (const Candidate& c : candidates) {
        if (!c.supported) continue;
        if (!wanted || !*wanted || c.table->name == std::string(wanted)) return *c.table;
        usable += (usable.empty() ? "" : ", ") + std::string(c.table->name);
    }
    throw std::runtime_error("[packedtri] PACKEDTRI_CPU_ISA=" + std::string(wanted) +
                             " names no instruction set of this machine; expected one of " +
                             usable);
}

}  // namespace

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
