#include <optional>

#include "choice.h"
#include "engine.h"
#include "fragments.h"
#include "kernels.h"
#include "launch.h"
#include "mv.h"
#include "products.h"
#include "remembered.h"
#include "resident.h"
#include "shared_images.h"
#include "small.h"
#include "strips.h"
#include "thin.h"
#include "wide.h"

namespace packedtri::cuda {
namespace {

void small(const Product& p, int side, cudaStream_t stream) {
    switch (p.dtype) {
        case DType::f16: return small_f16(p, side, stream);
        case DType::bf16: return small_bf16(p, side, stream);
        case DType::f32: return small_f32(p, side, stream);
        case DType::f64: return small_f64(p, side, stream);
        case DType::c64: return small_c64(p, side, stream);
        case DType::c128: return small_c128(p, side, stream);
    }
}

bool strips(const Product& p, Scratch& scratch, cudaStream_t stream) {
    switch (p.dtype) {
        case DType::f16: return mm_strips_f16(p, scratch, stream);
        case DType::bf16: return mm_strips_bf16(p, scratch, stream);
        case DType::f32: return mm_strips_f32(p, scratch, stream);
        case DType::f64: return mm_strips_f64(p, scratch, stream);
        default: throw std::logic_error("[packedtri] no strips of complex numbers");
    }
}

// Two symmetric operands make four products. Only real ones come here, and those of 16-bit elements, whose sums are
// rounded between, only where there is no scratch memory or a test forces a kernel.
template <class Multiply>
void by_triangles(const Product& p, const Multiply& multiply) {
    if (!has_symmetric(p)) return multiply(p);
    const auto [first, second] = halves(p);
    by_triangles(first, multiply);
    by_triangles(second, multiply);
}

void direct_tiles(const Product& p, const Config& config, Scratch* scratch, cudaStream_t stream) {
    switch (p.dtype) {
        case DType::f16: return product_f16(p, config, stream);
        case DType::bf16: return product_bf16(p, config, stream);
        case DType::f32:
            return by_warpgroups(p.dtype, config) ? product_tf32(p, config, stream)
                                                  : product_f32(p, config, stream);
        case DType::f64: return product_f64(p, config, scratch, stream);
        case DType::c64: return product_c64(p, config, stream);
        case DType::c128: return product_c128(p, config, stream);
    }
}

void direct(const Product& p, const Config& config, Scratch* scratch, cudaStream_t stream) {
    if (mirrors(p.dtype, config)) return direct_tiles(p, config, scratch, stream);
    by_triangles(p, [&](const Product& part) { direct_tiles(part, config, scratch, stream); });
}

// What the engine is to do, if it is to compute a product beside another one.
std::optional<EngineTask> paired_task(const Product& asked, const Scratch* scratch) {
    const Product p = settled(asked, current_device(), 2);
    const Config config = choose(p, current_device(), scratch != nullptr, 2);
    if (!by_images(config)) return std::nullopt;
    return EngineTask{p, config};
}

// `bytes`: of engine_scratch. Returns whether they were to be had.
bool run_engine(const EngineTask* tasks, int count, int64_t bytes, Scratch& scratch,
                cudaStream_t stream) {
    void* memory = scratch.reserve_if_free(bytes);
    if (!memory) return false;
    engine(tasks, count, memory, stream);
    return true;
}

}  // namespace

void mm(const Product& asked, Scratch* scratch, cudaStream_t stream) {
    check_reach({asked.m, asked.n, asked.k, asked.batch});
    const Device& device = current_device();
    const Product p = settled(asked, device);
    if (scratch && goes_by_triangles(p, device))
        return by_triangles(p, [&](const Product& part) { mm(part, scratch, stream); });
    const Config config = remembered_choice(p, device, scratch != nullptr);
    switch (config.method) {
        case Method::Vector: return mv(p, scratch, stream);
        case Method::Thin:
            return by_triangles(p, [&](const Product& part) { mm_thin(part, stream); });
        case Method::Wide: {
            const auto run = p.dtype == DType::f32   ? mm_wide_f32
                             : p.dtype == DType::f64 ? mm_wide_f64
                                                     : mm_wide;
            if (!run(p, *scratch, stream)) mm(p, nullptr, stream);
            return;
        }
        case Method::Strips: {
            if (!strips(p, *scratch, stream)) mm(p, nullptr, stream);
            return;
        }
        case Method::Fragments: return mm_fragments(p, config, stream);
        case Method::Resident: return mm_resident(p, config, stream);
        case Method::SharedImages: return mm_shared_images(p, config, stream);
        case Method::Small: return small(p, small_side(p, device), stream);
        case Method::Engine:
        case Method::Fused: {
            const EngineTask task{p, config};
            if (!run_engine(&task, 1, engine_scratch(&task, 1), *scratch, stream))
                mm(p, nullptr, stream);
            return;
        }
        case Method::Direct:
        case Method::Hopper:
        case Method::Mapped: return direct(p, config, scratch, stream);
    }
}

void mm_pair(const Product& p, const Product& q, Scratch* scratch, cudaStream_t stream) {
    check_reach({p.m, p.batch, q.m, q.batch});
    auto first = paired_task(p, scratch), second = paired_task(q, scratch);
    // All images of a launch are made by it, or none.
    if (first && second && first->config.method != second->config.method)
        first->config.method = second->config.method = Method::Engine;
    const auto alike = [&] {
        const Product &x = first->product, &y = second->product;
        return x.dtype == y.dtype && x.tf32 == y.tf32 && x.batch == y.batch;
    };
    if (first && second && alike() && first->config == second->config) {
        const EngineTask tasks[] = {*first, *second};
        const int64_t bytes = engine_scratch(tasks, 2);
        if (bytes <= current_device().scratch && run_engine(tasks, 2, bytes, *scratch, stream))
            return;
    }
    mm(p, scratch, stream);
    mm(q, scratch, stream);
}

}  // namespace packedtri::cuda
