// Vectors as the copy engine reads them: as they are, or a copy of which it can have a map.
#pragma once

#include "engine_layout.h"
#include "hopper.cuh"
#include "launch.h"
#include "tensor_map.h"
#include "vector_args.cuh"

namespace packedtri::cuda {

template <class T>
struct AlignArgs {
    const T* x;
    T* to;
    int64_t x_batch_stride, x_step, x_next;
    int n, vectors, pitch;
    int64_t all;  // Elements of all matrices, with the gaps behind their rows.
};

constexpr int ALIGN_THREADS = 256;

template <class T>
__global__ void __launch_bounds__(ALIGN_THREADS)
    align_vectors_kernel(const __grid_constant__ AlignArgs<T> args) {
    ptx::wait_for_dependency();
    ptx::launch_dependents();
    const int64_t e = int64_t{blockIdx.x} * ALIGN_THREADS + threadIdx.x, row = e / args.pitch,
                  matrix = row / args.n, c = e - row * args.pitch, k = row - matrix * args.n;
    if (e >= args.all || c >= args.vectors) return;
    args.to[e] = args.x[matrix * args.x_batch_stride + k * args.x_step + c * args.x_next];
}

template <class T>
class MappedVectors {
  public:
    explicit MappedVectors(const Product& p)
        : p_(p), x_(VectorProduct(p).vectors),
          pitch_(maps_dense_operand(p) ? 0 : pitch_of(vectors_of(p))),
          elements_((one() ? 1 : p.batch) * p.k * pitch_),
          along_(pitch_ == 0 && runs_along_rows(x_) != VectorProduct(p).left) {}

    // Whether all matrices of a batch are multiplied by the same vectors.
    bool one() const { return x_.batch_stride == 0; }
    // Whether the elements of a vector are neighbours in memory.
    bool along() const { return along_; }
    // Of the copy, which begins at a multiple of 16 bytes.
    int64_t bytes() const { return elements_ * static_cast<int64_t>(sizeof(T)); }

    // `copy`: where there is room for it.
    CUtensorMap place(const VectorArgs<T>& args, void* copy, cudaStream_t stream) const {
        if (elements_ == 0) return map_of(x_, p_.dtype, p_.batch);
        launch_overlapping(
            align_vectors_kernel<T>, grid_of(ceil_div(elements_, ALIGN_THREADS)), ALIGN_THREADS,
            AlignArgs<T>{args.x, static_cast<T*>(copy), args.x_batch_stride, args.x_step,
                         args.x_next, args.n, args.vectors, static_cast<int>(pitch_), elements_},
            stream, "cannot launch a copy");
        const Operand aligned{
            copy, Kind::Dense, p_.k, args.vectors, pitch_, 1, one() ? 0 : p_.k * pitch_};
        return map_of(aligned, p_.dtype, p_.batch);
    }

  private:
    // Rows of as many elements as are copied at once come soonest.
    static constexpr int64_t pitch_of(int64_t vectors) {
        return vectors <= 16 ? 16 : ceil_div(vectors, 64) * 64;
    }
    const Product& p_;
    const Operand& x_;
    const int64_t pitch_, elements_;
    const bool along_;
};

}  // namespace packedtri::cuda
