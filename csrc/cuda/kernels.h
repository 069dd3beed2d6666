// Entry points of the CUDA kernels. They are free of torch: raw pointers, sizes and a stream. They
// only enqueue work; a failed launch throws std::runtime_error.
#pragma once

#include <cuda_runtime_api.h>

#include "../problem.h"
#include "../solve_problem.h"

namespace packedtri::cuda {

// Where kernels get memory for the time of a call. What is enqueued later may reuse it.
class Scratch {
  public:
    // The one piece of memory of a call: the next request may return the same.
    virtual void* reserve(int64_t bytes) = 0;
    // The same, or null where there is no memory left.
    virtual void* reserve_if_free(int64_t bytes) = 0;

  protected:
    ~Scratch() = default;
};

// Without scratch memory some products, and what is made of them, are slower.
void mm(const Product& p, Scratch* scratch, cudaStream_t stream);
// Two products, of which each may share operands with the other.
void mm_pair(const Product& p, const Product& q, Scratch* scratch, cudaStream_t stream);
// After C = A B has been computed by others, with zeros where a triangle stores none: computes again,
// over stored elements only, what is not finite. C is dense, without gaps; `part` of it is needed.
void mend(const Product& p, Kind part, cudaStream_t stream);
void multiply_rows(const RowsVector& p, Scratch* scratch, cudaStream_t stream);
void pack(const Conversion& c, cudaStream_t stream);
void unpack(const Conversion& c, cudaStream_t stream);
void pack_block(const BlockConversion& c, cudaStream_t stream);
void unpack_block(const BlockConversion& c, cudaStream_t stream);
// Changes the elements of a block in its packed matrices, and no others. Of two that mirror each other the lower
// one is taken, and structural zeros are not looked at.
void write_block(const BlockConversion& c, cudaStream_t stream);
// Between packed triangles and their diagonals. The rest of the triangle is filled with zeros.
void diagonal(const Diagonal& d, cudaStream_t stream);
void embed_diagonal(const Diagonal& d, cudaStream_t stream);
void scale_band(const BandScale& p, cudaStream_t stream);
void solve(const Solve& p, Scratch* scratch, cudaStream_t stream);
void factor(const Factor& p, Scratch* scratch, cudaStream_t stream);
void first_zero(const FirstZero& p, cudaStream_t stream);
// Needs scratch memory for the rotations of 64 columns of L.
void update_factor(const FactorUpdate& p, Scratch* scratch, cudaStream_t stream);

}  // namespace packedtri::cuda
