#include "kernels.h"
namespace packedtri::cuda { void mm(const Product&, cudaStream_t) {} }
