// From an EnginePlan to a launch of engine_kernel.
#pragma once

#include "engine_kernel.cuh"
#include "engine_plan.h"
#include "launch.h"

namespace packedtri::cuda {

inline EngineOperand engine_operand(const EngineSource& s, Kind kind) {
    return {s.mapped ? nullptr : s.image, s.part_bytes, s.layout, kind};
}

template <class T>
EngineArgs<T> engine_args(const EnginePlan& plan) {
    const Product& p = plan.product;
    return {plan.a.map,
            plan.b.map,
            engine_operand(plan.a, p.a.kind),
            engine_operand(plan.b, p.b.kind),
            static_cast<T*>(p.c.data),
            p.c.row_stride,
            p.c.kind == Kind::Lower,
            static_cast<int>(p.m),
            static_cast<int>(p.n),
            static_cast<int>(ceil_div(p.k, Image::SIDE)),
            plan.schedule,
            plan.split,
            plan.shared_tiles,
            reinterpret_cast<EngineControl*>(plan.control),
            reinterpret_cast<float*>(plan.partials)};
}

template <class Shape, bool A_ACROSS, bool B_ACROSS>
void launch_kernel(const EnginePlan& plan, cudaStream_t stream) {
    const auto kernel = engine_kernel<Shape, A_ACROSS, B_ACROSS>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Shape::SHARED_BYTES),
          "cannot reserve shared memory");
    const int64_t items =
        plan.schedule.size() + int64_t{plan.shared_tiles} * (plan.split - 1);
    const int64_t clusters = current_device().multiprocessors / Shape::CLUSTER;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(std::min(items, clusters) * Shape::CLUSTER));
    config.blockDim = dim3(Shape::THREADS);
    config.dynamicSmemBytes = Shape::SHARED_BYTES;
    config.stream = stream;
    // The kernel sets itself up while the images are still being made.
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = Shape::CLUSTER;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = Shape::CLUSTER > 1 ? 2 : 1;
    check(cudaLaunchKernelEx(&config, kernel, engine_args<typename Shape::T>(plan)),
          "cannot launch a product");
}

template <class Shape>
void launch_engine(const EnginePlan& plan, cudaStream_t stream) {
    if (plan.a.across && plan.b.across) launch_kernel<Shape, true, true>(plan, stream);
    else if (plan.a.across) launch_kernel<Shape, true, false>(plan, stream);
    else if (plan.b.across) launch_kernel<Shape, false, true>(plan, stream);
    else launch_kernel<Shape, false, false>(plan, stream);
}

}  // namespace packedtri::cuda
