// What kernels are asked to do that multiply a packed matrix by groups of vectors, in parts that are added up at last.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "config.h"
#include "kernels.h"
#include "vector_product.h"

namespace packedtri::cuda {

// Y = T X for a packed matrix T of order n, in groups of `at_once` vectors. Each group of each matrix of a batch is a matrix
// of its own in what follows.
template <class T>
struct VectorArgs {
    const T* triangle;
    const T* x;
    T* y;
    int64_t triangle_batch_stride, x_batch_stride, y_batch_stride;
    // From one element of a vector to the next, and from vector to vector.
    int64_t x_step, x_next, y_step, y_next;
    int n, vectors, batch, groups, at_once;
    bool rows,
        columns;  // Which sums there are: along the rows of the triangle's memory, and down its columns.

    VectorArgs(const Product& p, int at_once) : at_once(at_once) {
        const VectorProduct sides(p);
        triangle = static_cast<const T*>(sides.packed.data);
        x = static_cast<const T*>(sides.vectors.data);
        y = static_cast<T*>(p.c.data);
        triangle_batch_stride = sides.packed.batch_stride;
        x_batch_stride = sides.vectors.batch_stride;
        y_batch_stride = p.c.batch_stride;
        x_step = sides.x_step;
        x_next = sides.x_next;
        y_step = sides.y_step;
        y_next = sides.y_next;
        n = static_cast<int>(p.k);
        vectors = static_cast<int>(vectors_of(p));
        batch = static_cast<int>(p.batch);
        groups = static_cast<int>(ceil_div(vectors, at_once));
        rows = adds_rows(p);
        columns = adds_columns(p);
    }
    int64_t matrices() const { return int64_t{batch} * groups; }
};

// Where a kernel finds the vectors: by a map of the copy engine, those of float64 in memory.
template <class T>
using PlacedVectors = std::conditional_t<std::is_same_v<T, double>, const double*, CUtensorMap>;

// Finds scratch memory for parts of sums and for vectors as a kernel wants them, and has these brought there. False where there
// is none.
template <class Vectors, class Args>
bool place_vectors(const Vectors& vectors, Args& args, Scratch& scratch, cudaStream_t stream) {
    const int64_t bytes = args.bytes();
    void* const memory = scratch.reserve_if_free(bytes + vectors.bytes());
    if (!memory) return false;
    args.put_sums(memory);
    args.placed = vectors.place(args, static_cast<char*>(memory) + bytes, stream);
    args.one_x = vectors.one();
    return true;
}

}  // namespace packedtri::cuda
