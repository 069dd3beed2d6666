"""Functions that convert packed arguments to dense, differentiably, and let torch compute.

Gradients come back to the packed type through the conversion. The list is explicit: a function that
is on no list raises.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from packedtri.dispatch import Function, function_name, row
from packedtri.tensor import PackedTensor


def densify(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` with every packed argument, also inside lists, converted to dense."""
    if isinstance(kwargs.get("out"), PackedTensor):
        raise NotImplementedError(
            f"[{function_name(function)}] cannot write a dense result into packed storage, out=; "
            "take the result and pack it with from_dense"
        )
    return function(*tree_map(_dense, args), **tree_map(_dense, kwargs))


def _dense(value: Any) -> Any:
    return value.to_dense() if isinstance(value, PackedTensor) else value


def functions(names: str, *homes: Any) -> list[Function]:
    """The functions of these names in torch, torch.Tensor or other homes, wherever they exist."""
    found = []
    for home in homes or (torch, Tensor):
        # A module has some of Python's special methods too, its own.
        own = [n for n in names.split() if home is Tensor or not n.startswith("__")]
        found += [f for name in own if callable(f := getattr(home, name, None))]
    return found


def add_dense_rows(to_densify: list[Function]) -> None:
    """A row for any types that densifies, for each of these functions."""
    for function in to_densify:
        row(function, how="dense", result=Tensor)(partial(densify, function))


# torch and torch.Tensor know these by the same names.
_ELEMENTWISE = """
    abs absolute acos acosh add angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin
    asinh atan atan2 atanh ceil clamp clamp_max clamp_min clip copysign cos cosh deg2rad digamma
    div divide eq erf erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod
    frac ge greater greater_equal gt hypot imag isclose isfinite isinf isnan isneginf isposinf
    isreal le lerp less less_equal lgamma log log10 log1p log2 logaddexp logical_and logical_not
    logical_or logical_xor logit lt maximum minimum mul multiply nan_to_num ne neg negative
    nextafter not_equal polygamma positive pow rad2deg real reciprocal relu remainder round rsqrt
    rsub sgn sigmoid sign signbit sin sinc sinh softmax log_softmax sqrt square sub subtract tan
    tanh true_divide trunc where xlogy addcdiv addcmul masked_fill bernoulli dropout
"""
_REDUCTIONS = """
    all allclose amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin cumprod
    cumsum dist equal logcumsumexp logsumexp max mean median min nanmean nansum norm prod quantile
    sort std std_mean sum topk trace var var_mean
"""
_SHAPE = """
    block_diag broadcast_to chunk diag diag_embed diagonal diff dsplit expand expand_as flatten
    flip fliplr flipud gather hsplit hstack dstack index_select index_add index_copy index_fill
    kron masked_select movedim moveaxis narrow nonzero permute ravel repeat repeat_interleave
    reshape reshape_as roll rot90 scatter scatter_add split squeeze take take_along_dim
    tensor_split tile tril triu unflatten unsqueeze vsplit vstack
"""
_LINEAR_ALGEBRA = """
    addr cdist cholesky cholesky_inverse
    cholesky_solve corrcoef cov det inverse logdet lu_solve matrix_exp
    matrix_power pinverse qr slogdet svd triangular_solve
"""
_LINALG = """
    cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv
    inv_ex ldl_factor lstsq lu lu_factor matrix_exp matrix_norm matrix_power matrix_rank
    norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorsolve vecdot vector_norm
"""
# Reading by Python's own syntax, and conversions to other libraries and types.
_METHODS = """
    __contains__ __bool__ __int__ __float__ __complex__ __index__
    __abs__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __div__ __rtruediv__
    __rdiv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __neg__ __pos__ __eq__
    __ne__ __lt__ __le__ __gt__ __ge__ __array__ item tolist bool byte char int long short
    view_as_real
"""
_LIKE = "ones_like full_like rand_like randn_like randint_like"
_FUNCTIONAL = """
    bilinear gelu silu softplus softmax log_softmax dropout mse_loss l1_loss huber_loss
    smooth_l1_loss cosine_similarity normalize pad layer_norm embedding elu leaky_relu tanh sigmoid
"""
_SPECIAL = "erf erfc erfinv exp2 expit expm1 gammaln log1p logit logsumexp sinc xlogy"

for _names in (_ELEMENTWISE, _REDUCTIONS, _SHAPE, _LINEAR_ALGEBRA, _METHODS, _LIKE):
    add_dense_rows(functions(_names))
add_dense_rows(functions(_LINALG, torch.linalg))
add_dense_rows(functions(_FUNCTIONAL, torch.nn.functional))
add_dense_rows(functions(_SPECIAL, torch.special))
add_dense_rows([torch.norm, Tensor.norm])
add_dense_rows([Tensor.real.__get__, Tensor.imag.__get__])
