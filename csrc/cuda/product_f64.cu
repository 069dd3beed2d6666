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

static_assert(shared_bytes<Large<true, true>>() <=
              1024 * tile_shared_kib(DType::f64, TileSize::Large));
static_assert(shared_bytes<Small<true, true>>() <=
              1024 * tile_shared_kib(DType::f64, TileSize::Small));

template <bool A_K_MAJOR, bool B_K_MAJOR>
void launch_persistent(const PersistentArgs& args, cudaStream_t stream) {
    using Shape = PersistentShape<A_K_MAJOR, B_K_MAJOR>;
    const auto kernel = persistent_kernel<A_K_MAJOR, B_K_MAJOR>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(std::min(args.work.items, current_device().multiprocessors)),
                       Shape::THREADS, args, stream, "cannot launch a product", 1,
                       Shape::SHARED_BYTES);
}

void persistent(const Product& p, const Config& config, Scratch& scratch, cudaStream_t stream) {
    using Shape = PersistentShape<true, true>;
    const OrientedPanel<double> a = orient<double>(p.a, true), b = orient<double>(p.b, false);
    PersistentArgs args{arguments<Shape::Mma>(p, config, a.panel, b.panel)};
    static_assert(Shape::Mma::BM == PartWork::TILE * Shape::Mma::BK);
    args.work = part_work(p, Shape::Mma::BM, config.part, current_device().multiprocessors);
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
    if (a.k_major && b.k_major) launch_persistent<true, true>(args, stream);
    else if (a.k_major) launch_persistent<true, false>(args, stream);
    else if (b.k_major) launch_persistent<false, true>(args, stream);
    else launch_persistent<false, false>(args, stream);
}

}  // namespace

void product_f64(const Product& p, const Config& config, Scratch* scratch, cudaStream_t stream) {
    if (is_persistent(config)) persistent(p, config, *scratch, stream);
    else if (config.tile == TileSize::Large) launch_product<Large, 1>(p, config, stream);
    else if (current_device().shared_kib < tile_shared_kib(DType::f64, TileSize::Small))
        launch_product<Short, 1>(p, config, stream);
    else launch_product<Small, 2>(p, config, stream);
}

}  // namespace packedtri::cuda
