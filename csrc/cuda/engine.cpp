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

static_assert(2 * MOST_ENGINE_TASKS <= MOST_IMAGES, "each operand may need one");

// The images of all operands of some products, each once.
struct Images {
    struct Place {
        Operand operand;
        EngineSource source;
        char* at;
    };
    Place places[MOST_IMAGES];
    int count = 0;
    uintptr_t free;  // Where the next one goes.

    // Where the image of an operand of `p` is, or is to be made.
    char* place(const Product& p, const Operand& x, const EngineSource& source) {
        for (int i = 0; i < count; ++i)
            if (same_image(p, x, source, places[i].operand, places[i].source)) return places[i].at;
        places[count++] = {x, source, reinterpret_cast<char*>(free)};
        free += static_cast<uintptr_t>(source.bytes);
        return places[count - 1].at;
    }

    // Makes those that matrix `batch` does not have in common with the one before.
    void pack(const Product& p, int64_t batch, int* control, int words, cudaStream_t stream) const {
        ImageRequest requests[MOST_IMAGES];
        int needed = 0;
        for (int i = 0; i < count; ++i) {
            const auto& [x, source, at] = places[i];
            if (batch > 0 && x.batch_stride == 0) continue;
            Operand one = x;
            one.data = matrix(x.data, batch, x.batch_stride, p.dtype);
            requests[needed++] = {one, source.across, source.image, at, source.part_bytes};
        }
        if (needed > 0)
            return pack_images(p.dtype, p.tf32, requests, needed, control, words, stream);
        check(cudaMemsetAsync(control, 0, static_cast<size_t>(words) * sizeof(int), stream),
              "cannot clear scratch memory");
    }
};

// Plans products whose scratch memory begins at `scratch`: the words that must be zero, then the images.
struct Plans {
    EnginePlan of[MOST_ENGINE_TASKS]{};
    Images images;
    int words = 0;

    Plans(const EngineTask* tasks, int count, uintptr_t scratch) {
        images.free = scratch;
        for (int t = 0; t < count; ++t) {
            EnginePlan& plan = of[t];
            plan.product = tasks[t].product;
            plan.config = tasks[t].config;
            plan.layout = engine_layout(plan.product, plan.config);
            plan.drawn = reinterpret_cast<int*>(images.free);
            // Before the first mark is the word for all.
            plan.marks = reinterpret_cast<int*>(images.free + 2 * sizeof(int));
            images.free += static_cast<uintptr_t>(plan.layout.control_bytes);
            words += static_cast<int>(plan.layout.control_bytes / sizeof(int));
        }
        for (int t = 0; t < count; ++t) {
            EnginePlan& plan = of[t];
            const Product& p = plan.product;
            const EngineLayout& layout = plan.layout;
            if (!layout.a.mapped) plan.a_image = images.place(p, p.a, layout.a);
            if (!layout.b.mapped) plan.b_image = images.place(p, p.b, layout.b);
        }
    }
};

void launch(const EnginePlan* plans, int count, cudaStream_t stream) {
    const Product& p = plans[0].product;
    if (p.dtype == DType::f16) engine_f16(plans, count, stream);
    else if (p.dtype == DType::bf16) engine_bf16(plans, count, stream);
    else if (p.tf32) engine_tf32(plans, count, stream);
    else engine_f32(plans, count, stream);
}

}  // namespace

int64_t engine_scratch(const EngineTask* tasks, int count) {
    return static_cast<int64_t>(Plans(tasks, count, 0).images.free);
}

void engine(const EngineTask* tasks, int count, void* scratch,
            void (*finish)(const Product&, cudaStream_t), cudaStream_t stream) {
    Plans plans(tasks, count, reinterpret_cast<uintptr_t>(scratch));
    const DType dtype = tasks[0].product.dtype;
    for (int64_t batch = 0; batch < tasks[0].product.batch; ++batch) {
        plans.images.pack(tasks[0].product, batch, plans.of[0].drawn, plans.words, stream);
        for (int t = 0; t < count; ++t) {
            const Product& p = tasks[t].product;
            Product& one = plans.of[t].product;
            one.batch = 1;
            one.a.data = matrix(p.a.data, batch, p.a.batch_stride, dtype);
            one.b.data = matrix(p.b.data, batch, p.b.batch_stride, dtype);
            one.c.data = matrix(p.c.data, batch, p.c.batch_stride, dtype);
            if (plans.of[t].layout.a.mapped) plans.of[t].a_map = map_of(one.a, dtype);
            if (plans.of[t].layout.b.mapped) plans.of[t].b_map = map_of(one.b, dtype);
        }
        launch(plans.of, count, stream);
        for (int t = 0; t < count; ++t) {
            Product rest = plans.of[t].product;
            rest.marks = plans.of[t].marks;
            finish(rest, stream);
        }
    }
}

}  // namespace packedtri::cuda
