#include "engine_layout.h"
#include "image_pack.h"
#include "kernels.h"
#include "mma_f64.cuh"
#include "persistent.cuh"
#include "product_launch.cuh"
#include "products.h"

namespace packedtri::cuda {
namespace {

template <bool A_K_MAJOR, bool B_K_MAJOR>
using Large = MainLoopAsync<double, MmaF64<128, 128, 32, 32, 64>, 3, A_K_MAJOR, B_K_MAJOR>;
// Two stages, so that copies of single elements, for which lines of the L1 cache are needed, find room there while two
// blocks share a multiprocessor. MIRRORED: see MainLoopAsync.
template <bool A_K_MAJOR, bool B_K_MAJOR, bool MIRRORED>
using SmallTile =
    MainLoopAsync<double, MmaF64<64, 64, 32, 32, 32>, 2, A_K_MAJOR, B_K_MAJOR, MIRRORED>;
// The same where each block has a multiprocessor for itself, by its registers: nobody else works while its warps wait, so
// there are more.
template <bool A_K_MAJOR, bool B_K_MAJOR, bool MIRRORED>
using TileApart =
    MainLoopAsync<double, MmaF64<64, 64, 32, 16, 32, 8>, 3, A_K_MAJOR, B_K_MAJOR, MIRRORED>;
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Small = SmallTile<A_K_MAJOR, B_K_MAJOR, false>;
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Apart = TileApart<A_K_MAJOR, B_K_MAJOR, false>;
using Mirrored = SmallTile<true, false, true>;
using MirroredApart = TileApart<true, false, true>;

static_assert(shared_bytes<Large<true, true>>() <=
              1024 * tile_shared_kib(DType::f64, TileSize::Large));
static_assert(shared_bytes<Small<true, true>>() <=
              1024 * tile_shared_kib(DType::f64, TileSize::Small));

template <class Shape>
void launch_persistent(const PersistentArgs& args, int slots, cudaStream_t stream) {
    const auto kernel = persistent_kernel<Shape>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(std::min(args.work.items, slots)), Shape::THREADS, args,
                       stream, "cannot launch a product", 1, Shape::SHARED_BYTES);
}

// Returns whether there was scratch memory for the parts of sums.
template <int SIDE, int STAGES>
bool persistent(const Product& p, const Config& config, Scratch& scratch, cudaStream_t stream) {
    using Shape = PersistentShape<SIDE, STAGES, true, true>;
    const OrientedPanel<double> a = orient<double>(p.a, true), b = orient<double>(p.b, false);
    PersistentArgs args{arguments<typename Shape::Mma>(p, config, a, b)};
    static_assert(Shape::BLOCKS_PER_SM ==
                      blocks_per_sm(DType::f64, Shape::LARGE ? TileSize::Large : TileSize::Small),
                  "what the choice of parts counts on");
    const int slots = Shape::BLOCKS_PER_SM * current_device().multiprocessors;
    args.work = part_work(p, SIDE, config.part, slots);
    if (args.work.items == 0) return true;
    const int64_t places = args.work.places(), words = 1 + places * Shape::WARPS,
                  control = scratch_piece(words * static_cast<int64_t>(sizeof(int))),
                  sums = places * Shape::WARPS * Shape::WARP_SUMS;
    char* memory = static_cast<char*>(
        scratch.reserve_if_free(control + sums * static_cast<int64_t>(sizeof(double))));
    if (!memory) return false;
    args.drawn = reinterpret_cast<int*>(memory);
    args.arrivals = args.drawn + 1;
    args.partial = reinterpret_cast<double*>(memory + control);
    clear_words(args.drawn, static_cast<int>(words), stream);
    if (a.k_major && b.k_major)
        launch_persistent<PersistentShape<SIDE, STAGES, true, true>>(args, slots, stream);
    else if (a.k_major)
        launch_persistent<PersistentShape<SIDE, STAGES, true, false>>(args, slots, stream);
    else if (b.k_major)
        launch_persistent<PersistentShape<SIDE, STAGES, false, true>>(args, slots, stream);
    else launch_persistent<PersistentShape<SIDE, STAGES, false, false>>(args, slots, stream);
    return true;
}

// Where both operands come by bulk copies, which leave the L1 cache alone, three stages are faster as long as sums are
// short.
bool has_deep_ring(const Product& p) {
    return p.a.kind != Kind::Dense && p.b.kind != Kind::Dense && p.k < 6144;
}

}  // namespace

void product_f64(const Product& p, const Config& config, Scratch* scratch, cudaStream_t stream) {
    const bool large = config.tile == TileSize::Large;
    if (is_persistent(DType::f64, config)) {
        const bool done = !large             ? persistent<64, 3>(p, config, *scratch, stream)
                          : has_deep_ring(p) ? persistent<128, 3>(p, config, *scratch, stream)
                                             : persistent<128, 2>(p, config, *scratch, stream);
        if (!done) mm(p, nullptr, stream);
    } else if (large) {
        launch_product<Large, 1>(p, config, stream);
    } else {
        launch_small<Small, Mirrored, 2, Apart, MirroredApart>(p, config, stream);
    }
}

}  // namespace packedtri::cuda
