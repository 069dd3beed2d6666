// A product of a launch of the engine, as its host side prepares it for the element types.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "engine_layout.h"
#include "image_pack.h"

namespace packedtri::cuda {

struct EnginePlan {
    // Matrices of the batch that have one launch together. Where their columns are joined it is one product, of as many
    // columns as all have, but B and C are those of the first matrix.
    Product product;
    Config config;
    EngineLayout layout;
    CUtensorMap a_map, b_map;  // Of mapped operands.
    CUtensorMap c_map;         // Of a result that the copy engine stores.
    bool c_mapped;
    const char *a_image, *b_image;
    const int *a_ready, *b_ready;  // See EngineOperand.
    int* counters;                 // EngineCounters.
    int *marks, *lines;            // See EngineLayout; null where there are none.
    int* part_words;               // Where sums are cut.
    float* part_sums;
};

// Images that the launch is to make.
struct EngineUnmade {
    ImageRequest images[MOST_IMAGES];
    int count;
    PackWork work;
};

// Up to two products in one launch, whose configurations are the same. One function an element type;
// each lives in a file of its own, so that they compile side by side.
void engine_f16(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                cudaStream_t stream);
void engine_bf16(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                 cudaStream_t stream);
void engine_f32(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                cudaStream_t stream);
void engine_tf32(const EnginePlan* plans, int count, const EngineUnmade& unmade,
                 cudaStream_t stream);

}  // namespace packedtri::cuda
