// Entry points of the CPU kernels. They are free of torch: raw pointers, sizes, and a way to run
// on the caller's threads.
#pragma once

#include "../problem.h"
#include "../solve_problem.h"

namespace packedtri::cpu {

// The caller's thread pool. run calls body(worker, context) once for each worker in [0, count);
// the calls may run at the same time, or one after another on a single thread, so they must not
// wait for each other. Work is shared through atomic counters in the context.
struct Threads {
    int count;
    void (*run)(int count, void (*body)(int worker, void* context), void* context);
};

void mm(const Product& p, const Threads& threads);
// What dense torch computes faster on unpacked copies: products of symmetric with dense matrices, which have no zeros to
// leave out, on CPUs of Intel in float64 and complex types; and in bfloat16, where there are instructions for it, large ones
// of these and some of few rows or columns.
bool leaves_to_dense(const Product& p);
// What is copied then.
Copies copies(const Product& p);
// Whether columns are turned into rows.
bool turns(const ColumnBatch& x);
// After C = A B of bfloat16 has been computed so, C dense without gaps: computes again the matrices of the
// batch in which something is not finite.
void mend(const Product& p, const Threads& threads);
void multiply_rows(const RowsVector& p, const Threads& threads);
void pack(const Conversion& c, const Threads& threads);
void unpack(const Conversion& c, const Threads& threads);
void pack_block(const BlockConversion& c, const Threads& threads);
void unpack_block(const BlockConversion& c, const Threads& threads);
// Changes the elements of a block in its packed matrices, and no others. Of two that mirror each other the lower
// one is taken, and structural zeros are not looked at.
void write_block(const BlockConversion& c, const Threads& threads);
// Between packed triangles and their diagonals. The rest of the triangle is filled with zeros.
void diagonal(const Diagonal& d, const Threads& threads);
void embed_diagonal(const Diagonal& d, const Threads& threads);
void scale_band(const BandScale& p, const Threads& threads);
void solve(const Solve& p, const Threads& threads);
void cholesky(const Factor& p, const Threads& threads);
void update_cholesky(const FactorUpdate& p, const Threads& threads);
void first_zero(const FirstZero& p);

// The instruction set that the kernels run on, chosen at first use, for `packedtri info`; where
// PACKEDTRI_CPU_ISA names one that cannot be had, the message that every kernel throws.
const char* isa();

}  // namespace packedtri::cpu
