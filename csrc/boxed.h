// Functions as kernels of torch's ops, whose errors say what torch says.
#pragma once

#include <torch/csrc/stable/library.h>

#include <stdexcept>
#include <string>
#include <utility>

// Since torch 2.13; null in older versions.
extern "C" __attribute__((weak)) const char* torch_exception_get_what_without_backtrace();

namespace packedtri {

// Where a function of torch has failed, its stable interface tells no more than its name; versions from 2.13 on are
// asked for the reason, which may be that there is no memory left.
[[noreturn]] inline void throw_with_reason(const std::runtime_error& error) {
    const std::string text = error.what();
    if (text.find("API call failed") == std::string::npos) throw;
    if (torch_exception_get_what_without_backtrace) {
        const std::string reason = torch_exception_get_what_without_backtrace();
        throw std::runtime_error(reason + " (torch, called by packedtri)");
    }
    throw std::runtime_error(
        "[packedtri] a function of torch failed, perhaps for want of memory; torch 2.13 and newer "
        "tell why: " +
        text);
}

template <auto function>
struct WithReason;
template <class R, class... Args, R (*function)(Args...)>
struct WithReason<function> {
    static R call(Args... args) {
        try {
            return function(std::forward<Args>(args)...);
        } catch (const std::runtime_error& error) {
            throw_with_reason(error);
        }
    }
};

}  // namespace packedtri

#define PACKEDTRI_BOX(function) TORCH_BOX(&packedtri::WithReason<&packedtri::function>::call)
// The same function as the kernel of an op and of its bare form, whose name has an underscore in front: without
// derivatives, for calls that nobody records, casts or watches (bare in packedtri/_autograd.py).
#define PACKEDTRI_IMPL(m, op, function)          \
    do {                                         \
        m.impl(op, PACKEDTRI_BOX(function));     \
        m.impl("_" op, PACKEDTRI_BOX(function)); \
    } while (false)
