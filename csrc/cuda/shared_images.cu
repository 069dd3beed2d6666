#include "shared_images.cuh"

#include "product_launch.cuh"
#include "shared_images.h"
#include "tensor_map.h"

namespace packedtri::cuda {
namespace {

template <class T, int GROUPS>
void launch(const SharedImagesArgs<T>& args, cudaStream_t stream) {
    const auto kernel = shared_images_kernel<T, GROUPS>;
    allow_shared(kernel);
    const Device& device = current_device();
    const int on_one =
        std::min(device.room_for(args.layout.bytes()), SharedImagesLayout::most_blocks(GROUPS));
    const int64_t blocks =
        std::min<int64_t>(args.product.batch, int64_t{device.multiprocessors} * on_one);
    launch_overlapping(kernel, grid_of(blocks), dim3(static_cast<unsigned>(args.layout.threads())),
                       args, stream, "cannot launch a product", 1, args.layout.bytes());
}

template <class T>
void run(const Product& p, const Config& config, cudaStream_t stream) {
    const OrientedPanel<T> a = orient<T>(p.a, true), b = orient<T>(p.b, false);
    SharedImagesArgs<T> args{};
    args.product = arguments_without_tiles(p, a, b);
    args.layout = shared_images_layout(p, current_device(), config.group);
    int count = 0;
    for (const Operand* x : {&p.a, &p.b}) {
        if (x->kind == Kind::Dense) {
            args.map = map_of(*x, p.dtype, p.batch);
            args.dense_is_a = x == &p.a;
            args.dense_alike = x->batch_stride == 0;
        } else if (count < args.layout.operands) {
            args.packed[count] = static_cast<const T*>(x->data);
            args.stride[count] = x->batch_stride;
            args.mirrored[count++] = x->kind == Kind::Symmetric;
        }
    }
    args.stored = static_cast<int>(row_start(p.k));
    switch (args.layout.side) {
        case 1: return launch<T, 1>(args, stream);
        case 2: return launch<T, 2>(args, stream);
        case 3: return launch<T, 3>(args, stream);
        default: return launch<T, 4>(args, stream);
    }
}

}  // namespace

void mm_shared_images(const Product& p, const Config& config, cudaStream_t stream) {
    if (p.dtype == DType::f16) run<__half>(p, config, stream);
    else run<__nv_bfloat16>(p, config, stream);
}

}  // namespace packedtri::cuda
