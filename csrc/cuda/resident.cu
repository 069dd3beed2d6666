#include "resident.cuh"

#include "product_launch.cuh"
#include "resident.h"
#include "vector_product.h"

namespace packedtri::cuda {
namespace {

// Bytes of a dense matrix.
constexpr int64_t MOST_PREFETCHED = int64_t{1} << 20;

template <class T, DType DTYPE, TileSize TILE>
void run_tiles(const Product& p, const Config& config, cudaStream_t stream) {
    constexpr ResidentShape SHAPE = resident_shape(DTYPE, TILE);
    constexpr int MT = SHAPE.rows, NT = SHAPE.cols, THREADS = 32 * resident_warps(DTYPE);
    const OrientedPanel<T> a = orient<T>(p.a, true), b = orient<T>(p.b, false);
    const VectorProduct sides(p);
    const Operand &packed = sides.packed, &dense = sides.vectors;
    const OrientedPanel<T>& x = sides.left ? b : a;
    const int64_t size = element_size(p.dtype), elements = p.k * vectors_of(p);
    // Rows of memory may be far apart, or one row all of them.
    const bool no_gaps = dense.batch_stride == elements && in_one_piece(dense);
    ResidentArgs<T> args{
        arguments_without_tiles(p, a, b),
        static_cast<const T*>(packed.data),
        static_cast<const T*>(dense.data),
        packed.batch_stride,
        dense.batch_stride,
        sides.left,
        packed.hermitian,
        static_cast<int>(p.k),
        static_cast<int>(vectors_of(p)),
        static_cast<int>(x.panel.ld),
        x.k_major,
        !x.k_major &&
            rows_begin_at(alignof(Words<T, NT>), dense.data, x.panel.ld, dense.batch_stride, size),
        sides.left && rows_begin_at(alignof(Words<T, 2 * NT>), p.c.data, p.c.row_stride,
                                    p.c.batch_stride, size),
        config.group,
        static_cast<int>(resident_bytes(p)),
        no_gaps && elements * size <= MOST_PREFETCHED ? static_cast<int>(elements * size / 16 * 16)
                                                      : 0};
    const auto kernel = sides.kind == Kind::Lower ? resident_kernel<T, MT, NT, THREADS, Kind::Lower>
                        : sides.kind == Kind::Upper
                            ? resident_kernel<T, MT, NT, THREADS, Kind::Upper>
                            : resident_kernel<T, MT, NT, THREADS, Kind::Symmetric>;
    allow_shared(kernel);
    launch_overlapping(kernel, grid_of(ceil_div(p.batch, config.group)),
                       dim3(static_cast<unsigned>(32 * config.split)), args, stream,
                       "cannot launch a product", 1, args.slot * args.apiece);
}

template <class T, DType DTYPE>
void run(const Product& p, const Config& config, cudaStream_t stream) {
    constexpr ResidentShape SMALL = resident_shape(DTYPE, TileSize::Small),
                            LARGE = resident_shape(DTYPE, TileSize::Large);
    if constexpr (SMALL.rows != LARGE.rows || SMALL.cols != LARGE.cols)
        if (config.tile == TileSize::Large)
            return run_tiles<T, DTYPE, TileSize::Large>(p, config, stream);
    run_tiles<T, DTYPE, TileSize::Small>(p, config, stream);
}

}  // namespace

void mm_resident(const Product& p, const Config& config, cudaStream_t stream) {
    switch (p.dtype) {
        case DType::f16: return run<__half, DType::f16>(p, config, stream);
        case DType::bf16: return run<__nv_bfloat16, DType::bf16>(p, config, stream);
        case DType::f32: return run<float, DType::f32>(p, config, stream);
        case DType::f64: return run<double, DType::f64>(p, config, stream);
        case DType::c64: return run<Complex<float>, DType::c64>(p, config, stream);
        case DType::c128: return run<Complex<double>, DType::c128>(p, config, stream);
    }
}

}  // namespace packedtri::cuda
