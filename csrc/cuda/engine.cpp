#include "engine.h"

#include <algorithm>

#include "engine_plan.h"
#include "image_pack.h"
#include "launch.h"

namespace packedtri::cuda {
namespace {

constexpr int64_t ALIGNMENT = 1024;

int64_t aligned(int64_t bytes) { return ceil_div(bytes, ALIGNMENT) * ALIGNMENT; }

bool by_rows(const Operand& x) {
    return x.kind == Kind::Dense ? x.col_stride == 1 || x.cols <= 1 : x.kind == Kind::Lower;
}

// A map needs a matrix whose rows start at multiples of 16 bytes.
bool mappable(const Operand& x, DType dtype) {
    if (x.kind != Kind::Dense || element_size(dtype) != 2) return false;
    const int64_t stride = by_rows(x) ? x.row_stride : x.col_stride;
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && stride % 8 == 0 &&
           x.batch_stride % 8 == 0;
}

EngineSource source(const Operand& x, DType dtype, bool is_a) {
    EngineSource s{};
    s.mapped = mappable(x, dtype);
    s.across = by_rows(x) != is_a;
    s.layout = image_of(x);
    s.part_bytes = s.layout.bytes();
    s.bytes = s.mapped ? 0 : s.part_bytes * (dtype == DType::f32 ? 3 : 1);
    return s;
}

bool same_image(const Product& p) {
    return p.a.data == p.b.data && p.a.kind != Kind::Dense && p.b.kind != Kind::Dense &&
           p.a.batch_stride == p.b.batch_stride;
}

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

// Boxes of 64 x 64 elements in the order of the blocks of an image.
CUtensorMap map_of(const Operand& x, DType dtype, const void* data) {
    const bool rows = by_rows(x);
    const auto inner = static_cast<cuuint64_t>(rows ? x.cols : x.rows),
               outer = static_cast<cuuint64_t>(rows ? x.rows : x.cols),
               stride = static_cast<cuuint64_t>(rows ? x.row_stride : x.col_stride) * 2;
    const cuuint64_t size[2] = {inner, outer}, strides[1] = {stride};
    const cuuint32_t box[2] = {Image::SIDE, Image::SIDE}, steps[2] = {1, 1};
    CUtensorMap map;
    const auto type = dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                          : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (encoder()(&map, type, 2, const_cast<void*>(data), size, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        throw std::runtime_error("[packedtri] the driver refused to map a matrix");
    return map;
}

EnginePlan plan_of(const Product& p, const Config& config) {
    EnginePlan plan{};
    plan.product = p;
    plan.product.batch = 1;
    plan.a = source(p.a, p.dtype, true);
    plan.b = source(p.b, p.dtype, false);
    if (same_image(p)) plan.b.bytes = 0;
    plan.large = config.tile == TileSize::Large;
    const int64_t side = engine_tile_side(config.tile);
    plan.schedule = {static_cast<int>(ceil_div(p.m, side)), static_cast<int>(ceil_div(p.n, side)),
                     config.group, p.c.kind == Kind::Lower,
                     longest_first(p.a.kind, p.b.kind)};
    plan.split = config.split;
    if (config.split > 1)
        plan.shared_tiles = static_cast<int>(
            std::min(plan.schedule.size(),
                     plan.schedule.count_long(static_cast<int>(ceil_div(p.k, side)),
                                              config.split_above)));
    // The next tile, the flag, and a counter for each place where a warpgroup leaves a sum.
    const int64_t places = int64_t{plan.shared_tiles} * plan.split * (plan.large ? 4 : 2);
    plan.control_bytes = aligned((2 + places) * 4);
    plan.partial_bytes = int64_t{plan.shared_tiles} * plan.split * side * side * 4;
    return plan;
}

}  // namespace

int64_t engine_workspace(const Product& p, const Config& config) {
    const EnginePlan plan = plan_of(p, config);
    return plan.control_bytes + plan.partial_bytes + plan.a.bytes + plan.b.bytes;
}

const int* engine(const Product& p, const Config& config, void* workspace, cudaStream_t stream) {
    EnginePlan plan = plan_of(p, config);
    plan.control = static_cast<char*>(workspace);
    plan.partials = plan.control + plan.control_bytes;
    plan.a.image = plan.partials + plan.partial_bytes;
    plan.b.image = same_image(p) ? plan.a.image : plan.a.image + plan.a.bytes;
    const int words = static_cast<int>(plan.control_bytes / 4);
    for (int64_t batch = 0; batch < p.batch; ++batch) {
        const int64_t size = element_size(p.dtype);
        Product& one = plan.product;
        one.a.data = static_cast<const char*>(p.a.data) + batch * p.a.batch_stride * size;
        one.b.data = static_cast<const char*>(p.b.data) + batch * p.b.batch_stride * size;
        one.c.data = static_cast<char*>(p.c.data) + batch * p.c.batch_stride * size;
        ImageRequest requests[2];
        int count = 0;
        const auto prepare = [&](EngineSource& s, const Operand& x, bool is_a, bool fresh) {
            if (s.mapped) s.map = map_of(x, p.dtype, x.data);
            else if (fresh) requests[count++] = {x, is_a, s.layout, s.image, s.part_bytes};
        };
        prepare(plan.a, one.a, true, batch == 0 || p.a.batch_stride != 0);
        prepare(plan.b, one.b, false,
                !same_image(p) && (batch == 0 || p.b.batch_stride != 0));
        auto* control = reinterpret_cast<int*>(plan.control);
        if (count > 0) pack_images(p.dtype, requests, count, control, words, stream);
        else check(cudaMemsetAsync(control, 0, plan.control_bytes, stream), "cannot zero memory");
        if (p.dtype == DType::f16) engine_f16(plan, stream);
        else if (p.dtype == DType::bf16) engine_bf16(plan, stream);
        else engine_f32(plan, stream);
    }
    return reinterpret_cast<int*>(plan.control) + 1;
}

}  // namespace packedtri::cuda
