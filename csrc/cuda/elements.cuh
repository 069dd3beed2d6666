// From the run-time element type to a template argument.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../problem.h"
#include "scalar.cuh"

namespace packedtri::cuda {

// Calls f with a value of the type that DType names.
template <class F>
void with_element_type(DType dtype, F f) {
    switch (dtype) {
        case DType::f16: return f(__half{});
        case DType::bf16: return f(__nv_bfloat16{});
        case DType::f32: return f(float{});
        case DType::f64: return f(double{});
        case DType::c64: return f(Complex<float>{});
        case DType::c128: return f(Complex<double>{});
    }
}

}  // namespace packedtri::cuda
