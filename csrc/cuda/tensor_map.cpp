#include "tensor_map.h"

#include <cuda_runtime_api.h>

#include "image.h"
#include "launch.h"

namespace packedtri::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found at run time: nothing else of the driver is linked.
Encode encoder() {
    static const Encode found = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult result;
        check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                               cudaEnableDefault, &result),
              "cannot find cuTensorMapEncodeTiled");
        if (!function) throw std::runtime_error("[packedtri] the driver cannot map matrices");
        return reinterpret_cast<Encode>(function);
    }();
    return found;
}

CUtensorMapDataType map_type(DType dtype) {
    return dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

}  // namespace

CUtensorMap map_of(const Operand& x, DType dtype, int64_t matrices, int box_rows) {
    const bool rows = runs_along_rows(x);
    const auto inner = static_cast<cuuint64_t>(rows ? x.cols : x.rows),
               outer = static_cast<cuuint64_t>(rows ? x.rows : x.cols),
               size_of = static_cast<cuuint64_t>(element_size(dtype)),
               stride = static_cast<cuuint64_t>(rows ? x.row_stride : x.col_stride) * size_of;
    // All matrices of a batch may be one, and the next of one alone is never read.
    const bool alone = matrices == 1 || x.batch_stride == 0;
    const cuuint64_t next = alone ? stride : static_cast<cuuint64_t>(x.batch_stride) * size_of;
    const cuuint64_t size[3] = {inner, outer, alone ? 1 : static_cast<cuuint64_t>(matrices)},
                     strides[2] = {stride, next};
    const cuuint32_t box[3] = {static_cast<cuuint32_t>(Image::ROW_BYTES / size_of),
                               static_cast<cuuint32_t>(box_rows), 1},
                     steps[3] = {1, 1, 1};
    CUtensorMap map;
    if (encoder()(&map, map_type(dtype), 3, const_cast<void*>(x.data), size, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        throw std::runtime_error("[packedtri] the driver refused to map a matrix");
    return map;
}

CUtensorMap map_of(const Operand& x, DType dtype, int64_t matrices) {
    return map_of(x, dtype, matrices, Image::SIDE);
}

}  // namespace packedtri::cuda
