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
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Small = MainLoopAsync<double, MmaF64<64, 64, 32, 32, 32>, 3, A_K_MAJOR, B_K_MAJOR>;
// For devices with 100 KiB of shared memory.
template <bool A_K_MAJOR, bool B_K_MAJOR>
using Short = MainLoopAsync<double, MmaF64<64, 64, 32, 32, 32>, 2, A_K_MAJOR, B_K_MAJOR>;
template <int STAGES>
using Mirrored = MainLoopAsync<double, MmaF64<64, 64, 32, 32, 32>, STAGES, true, false, true>;

static_assert(shared_bytes<Large<true, true>>() <=
              1024 * tile_shared_kib(DType::f64, TileSize::Large));
static_assert(shared_bytes<Small<true, true>>() <=
              1024 * tile_shared_kib(DType::f64, TileSize::Small));

template <int SIDE, bool A_K_MAJOR, bool B_K_MAJOR>
void launch_persistent(const PersistentArgs& args, int slots, cudaStream_t stream) {
    using Shape = PersistentShape<SIDE, A_K_MAJOR, B_K_MAJOR>;
    const auto kernel = persistent_kernel<SIDE, A_K_MAJOR, B_K_MAJOR>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(std::min(args.work.items, slots)), Shape::THREADS, args,
                       stream, "cannot launch a product", 1, Shape::SHARED_BYTES);
}

template <int SIDE>
void persistent(const Product& p, const Config& config, Scratch& scratch, cudaStream_t stream) {
    using Shape = PersistentShape<SIDE, true, true>;
    const OrientedPanel<double> a = orient<double>(p.a, true), b = orient<double>(p.b, false);
    PersistentArgs args{arguments<typename Shape::Mma>(p, config, a, b)};
    static_assert(Shape::BLOCKS_PER_SM ==
                      blocks_per_sm(DType::f64, Shape::LARGE ? TileSize::Large : TileSize::Small),
                  "what the choice of parts counts on");
    const int slots = Shape::BLOCKS_PER_SM * current_device().multiprocessors;
    args.work = part_work(p, SIDE, config.part, slots);
    if (args.work.items == 0) return;
    const int64_t places = args.work.places(), words = 1 + places * Shape::WARPS,
                  control = scratch_piece(words * static_cast<int64_t>(sizeof(int))),
                  sums = places * Shape::WARPS * Shape::WARP_SUMS;
    char* memory =
        static_cast<char*>(scratch.reserve(control + sums * static_cast<int64_t>(sizeof(double))));
    args.drawn = reinterpret_cast<int*>(memory);
    args.arrivals = args.drawn + 1;
    args.partial = reinterpret_cast<double*>(memory + control);
    clear_words(args.drawn, static_cast<int>(words), stream);
    if (a.k_major && b.k_major) launch_persistent<SIDE, true, true>(args, slots, stream);
    else if (a.k_major) launch_persistent<SIDE, true, false>(args, slots, stream);
    else if (b.k_major) launch_persistent<SIDE, false, true>(args, slots, stream);
    else launch_persistent<SIDE, false, false>(args, slots, stream);
}

}  // namespace

void product_f64(const Product& p, const Config& config, Scratch* scratch, cudaStream_t stream) {
    const bool large = config.tile == TileSize::Large;
    if (is_persistent(DType::f64, config))
        return large ? persistent<128>(p, config, *scratch, stream)
                     : persistent<64>(p, config, *scratch, stream);
    if (large) launch_product<Large, 1>(p, config, stream);
    else if (current_device().shared_kib < tile_shared_kib(DType::f64, TileSize::Small))
        launch_product<Short, 1, Mirrored<2>>(p, config, stream);
    else launch_product<Small, 2, Mirrored<3>>(p, config, stream);
}

}  // namespace packedtri::cuda
