// An op that allocates its result as the bindings do and writes nothing: what poison must show in.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor unwritten(Tensor like, int64_t count) { return torch::stable::new_empty(like, {count}); }

STABLE_TORCH_LIBRARY(packedtri_test, m) { m.def("unwritten(Tensor like, int count) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(packedtri_test, CPU, m) { m.impl("unwritten", TORCH_BOX(&unwritten)); }
