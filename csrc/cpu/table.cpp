// The table of kernels of one instruction set.
#include "isa.h"

#define PACKEDTRI_STRING(x) #x
#define PACKEDTRI_NAME(x) PACKEDTRI_STRING(x)

namespace packedtri::cpu::PACKEDTRI_ISA {

void mm_tile(const Product& p, int64_t batch, const Tile& tile);
void mm_slim(const Product& p, int64_t batch, int64_t begin, int64_t end);
void mv(const MatrixVector& p, int64_t begin, int64_t end);
void mv_each(const MatrixVectors& p);
void symv_part(const MatrixVector& p, int64_t begin, int64_t end, void* part);
void symv_sum(const MatrixVector& p, void* parts, int64_t count);
int64_t few_width(DType dtype, Kind kind, int64_t count);
void few_load(const FewVectors& p, void* panel);
void few_part(const FewVectors& p, const void* x, int64_t begin, int64_t end, void* y);
void few_sum(const FewVectors& p, const void* parts, int64_t count, int64_t begin, int64_t end);
void pack(const Conversion& c, int64_t batch, int64_t begin, int64_t end);
void unpack(const Conversion& c, int64_t batch, int64_t begin, int64_t end);
void pack_block(const BlockConversion& c, int64_t batch, int64_t begin, int64_t end);
void unpack_block(const BlockConversion& c, int64_t batch, int64_t begin, int64_t end);
void scale_band(const BandScale& p, int64_t batch, int64_t begin, int64_t end);
void solve(const SmallSolve& p);
void solve_vector(const VectorSubstitution& p);
int64_t cholesky(const Block& a, int64_t n);
int64_t update_cholesky(const FactorUpdate& p, int64_t batch);
bool finite_bf16(const void* elements, int64_t count);

extern const Kernels table;
const Kernels table{PACKEDTRI_NAME(PACKEDTRI_ISA),
                    mm_tile,
                    mm_slim,
                    mv,
                    mv_each,
                    symv_part,
                    symv_sum,
                    few_width,
                    few_load,
                    few_part,
                    few_sum,
                    pack,
                    unpack,
                    pack_block,
                    unpack_block,
                    scale_band,
                    solve,
                    solve_vector,
                    cholesky,
                    update_cholesky,
                    finite_bf16};

}  // namespace packedtri::cpu::PACKEDTRI_ISA
