#include "engine.h"

#include "engine_plan.h"
#include "image_pack.h"
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

// What a map takes the elements of a matrix for: float32 it rounds to TF32 while it copies.
CUtensorMapDataType map_type(DType dtype) {
    if (dtype == DType::f32) return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    return dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

// Boxes of 64 rows of 128 bytes in the order of the blocks of an image.
CUtensorMap map_of(const Operand& x, DType dtype) {
    const bool rows = runs_along_rows(x);
    const auto inner = static_cast<cuuint64_t>(rows ? x.cols : x.rows),
               outer = static_cast<cuuint64_t>(rows ? x.rows : x.cols),
               size_of = static_cast<cuuint64_t>(element_size(dtype)),
               stride = static_cast<cuuint64_t>(rows ? x.row_stride : x.col_stride) * size_of;
    const cuuint64_t size[2] = {inner, outer}, strides[1] = {stride};
    const cuuint32_t box[2] = {static_cast<cuuint32_t>(Image::ROW_BYTES / size_of), Image::SIDE},
                     steps[2] = {1, 1};
    CUtensorMap map;
    if (encoder()(&map, map_type(dtype), 2, const_cast<void*>(x.data), size, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        throw std::runtime_error("[packedtri] the driver refused to map a matrix");
    return map;
}

// Matrix `batch` of an operand or result.
void* matrix(const void* data, int64_t batch, int64_t batch_stride, DType dtype) {
    const char* start = static_cast<const char*>(data);
    return const_cast<char*>(start + batch * batch_stride * element_size(dtype));
}

EnginePlan plan_of(const Product& p, const Config& config, void* scratch) {
    EnginePlan plan{};
    plan.product = p;
    plan.product.batch = 1;
    plan.config = config;
    plan.layout = engine_layout(p, config);
    char* free = static_cast<char*>(scratch);
    plan.drawn = reinterpret_cast<int*>(free);
    plan.marks = plan.drawn + 2;  // Before the first is the word for all.
    free += plan.layout.control_bytes;
    plan.a_image = free;
    plan.b_image = plan.layout.shared_image ? free : free + plan.layout.a.bytes;
    return plan;
}

// Makes the images and maps of the product's operands, except those that matrices before it had too,
// and clears the control words.
void prepare(EnginePlan& plan, bool new_a, bool new_b, cudaStream_t stream) {
    const Product& p = plan.product;
    const EngineLayout& layout = plan.layout;
    ImageRequest requests[2];
    int count = 0;
    const auto request = [&](const Operand& x, const EngineSource& s, const char* image,
                             bool is_a) {
        requests[count++] = {x, is_a, s.across, s.image, const_cast<char*>(image), s.part_bytes};
    };
    if (layout.a.mapped) plan.a_map = map_of(p.a, p.dtype);
    else if (new_a) request(p.a, layout.a, plan.a_image, true);
    if (layout.b.mapped) plan.b_map = map_of(p.b, p.dtype);
    else if (new_b && !layout.shared_image) request(p.b, layout.b, plan.b_image, false);
    const auto words = static_cast<int>(layout.control_bytes / sizeof(int));
    if (count > 0) pack_images(p.dtype, p.tf32, requests, count, plan.drawn, words, stream);
    else
        check(cudaMemsetAsync(plan.drawn, 0, static_cast<size_t>(layout.control_bytes), stream),
              "cannot clear scratch memory");
}

}  // namespace

int64_t engine_scratch(const Product& p, const Config& config) {
    return engine_layout(p, config).scratch_bytes();
}

void engine(const Product& p, const Config& config, void* scratch,
            void (*finish)(const Product&, cudaStream_t), cudaStream_t stream) {
    EnginePlan plan = plan_of(p, config, scratch);
    Product& one = plan.product;
    for (int64_t batch = 0; batch < p.batch; ++batch) {
        one.a.data = matrix(p.a.data, batch, p.a.batch_stride, p.dtype);
        one.b.data = matrix(p.b.data, batch, p.b.batch_stride, p.dtype);
        one.c.data = matrix(p.c.data, batch, p.c.batch_stride, p.dtype);
        prepare(plan, batch == 0 || p.a.batch_stride != 0, batch == 0 || p.b.batch_stride != 0,
                stream);
        if (p.dtype == DType::f16) engine_f16(plan, stream);
        else if (p.dtype == DType::bf16) engine_bf16(plan, stream);
        else if (p.tf32) engine_tf32(plan, stream);
        else engine_f32(plan, stream);
        Product rest = one;
        rest.marks = plan.marks;
        finish(rest, stream);
    }
}

}  // namespace packedtri::cuda
