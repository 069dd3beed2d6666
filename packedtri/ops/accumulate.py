"""Products that are added to something: ``addmm`` and its kin, and linear layers.

The product goes by the rows of ``torch.matmul`` and the sum of two types by those of ``torch.add``,
so a type survives where both keep it. The sum of a type and a dense tensor is dense.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._values import describe
from packedtri.dispatch import Function, row
from packedtri.ops.dense import as_dense, densify, functions, stored_of
from packedtri.ops.dims import can_expand
from packedtri.ops.gram import product_for
from packedtri.ops.matmul import check_no_dtype
from packedtri.ops.mm import autocast_dtype, cast_as_mv, without_autocast
from packedtri.ops.overrides import write_back
from packedtri.ops.pointwise import with_dense
from packedtri.tensor import PackedTensor


def _sum(name: str, input: Tensor, product: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * product``."""
    _check_expands(name, input, product)
    product = product if alpha == 1 else product * alpha
    input = _cast(name, input if beta in (0, 1) else input * beta, product)
    if beta != 0:
        return _added(input, product)
    # As in torch the input is not read then, so its nan stays out, but it has a gradient.
    return product * _one(input) if input.requires_grad else product


_PLAIN = (Tensor, torch.nn.Parameter)
# How many dimensions the factors of a product have.
_RANKS = {torch.addmm: 2, torch.baddbmm: 3, torch.addbmm: 3}


def _with_dense_factors(
    function: Function, input: Tensor, a: Tensor, b: Tensor, factors: dict[str, Any]
) -> Tensor | None:
    """The sum where only what is added is packed: dense torch needs no second pass for it.

    None where it is not read, or something does not fit, which is found when the product is there.
    """
    if not isinstance(input, PackedTensor) or factors.get("beta") == 0:
        return None
    own = input._packed
    if not all(type(x) in _PLAIN and x.layout is torch.strided for x in (own, a, b)):
        return None
    if autocast_dtype(own) is not own.dtype or not a.dim() == b.dim() == _RANKS[function]:
        return None
    alike = all(x.dtype is own.dtype and x.device == own.device for x in (a, b))
    shape = (*a.shape[:-1], b.shape[-1])
    if not alike or not can_expand(input.shape, shape[1:] if function is torch.addbmm else shape):
        return None
    if not all(type(x) in (int, float) for x in factors.values()):
        return None
    return densify(function, input, a, b, **factors)


def _sum_with_product(
    function: Function,
    product: Function,
    input: Tensor,
    a: Tensor,
    b: Tensor,
    factors: dict[str, Any],
) -> Tensor:
    """``beta * input + alpha * product(a, b)``, which is what ``function`` gives."""
    found = _with_dense_factors(function, input, a, b, factors)
    return _sum(function.__name__, input, product(a, b), **factors) if found is None else found


def _sum_of_bmm(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b).sum(0)


def _added(a: Tensor, b: Tensor) -> Tensor:
    """Their sum, dense where one of them is: as a matrix, of one element too, and not a number."""
    if isinstance(a, PackedTensor) is isinstance(b, PackedTensor):
        return a + b
    return with_dense(Tensor.add, a, b)


def _one(x: Tensor) -> Tensor:
    """The number 1, to autograd a function of ``x``."""
    elements = _nodes.to_packed(x) if isinstance(x, PackedTensor) else x
    return 1 + elements.reshape(-1)[:0].sum().real


def _cast(name: str, input: Tensor, product: Tensor) -> Tensor:
    """What is added, as autocast has it, of the dtype of the product."""
    own, wanted = stored_of(input), stored_of(product)
    dtype = autocast_dtype(own)
    if (dtype, own.device) != (wanted.dtype, wanted.device):
        raise ValueError(
            f"[{name}] expected what is added to be on {wanted.device} and of {wanted.dtype}; "
            f"got {describe(input)} on {own.device} and of {dtype}"
        )
    return input if own.dtype is dtype else input.to(dtype)


def _sum_in_place(
    name: str, self: Tensor, product: Tensor, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    # Whatever may raise comes before the first change.
    product = product if alpha == 1 else product * alpha
    if not _is_alike(self, product):
        if self.shape != product.shape:
            raise ValueError(
                f"[{name}] expected a product of the shape of {describe(self)}; "
                f"got {describe(product)}"
            )
        _cast(name, self, product)
    if isinstance(self, PackedTensor) and type(product) is not type(self):
        # The sum must have the structure of ``self``, as A @ A.mT has of a Symmetric.
        total = as_dense(product) if beta == 0 else as_dense(product) + as_dense(self) * beta
        advice = f"Use {name[:-1]}, which returns a new tensor"
        return write_back(name, self, total, advice)
    if beta != 1:
        self = self.zero_() if beta == 0 else self.mul_(beta)
    return self.add_(product)


def _is_alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are of one packed type, shape, dtype and device, by what is quick."""
    if type(a) is not type(b) or not isinstance(a, PackedTensor):
        return False
    p, q = a._packed, b._packed
    return p.shape == q.shape and p.dtype is q.dtype and p.device == q.device


def _check_expands(name: str, x: Tensor, to: Tensor) -> None:
    """Raise where a sum would have another shape than the tensor that decides it."""
    if not can_expand(x.shape, to.shape):
        raise ValueError(f"[{name}] {describe(x)} does not expand to {describe(to)}")


@row(functions("addmm"))
def _addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, out_dtype: Any = None, **factors: Any
) -> Tensor:
    check_no_dtype("addmm", out_dtype, input, mat1, mat2)
    return _sum_with_product(torch.addmm, torch.mm, input, mat1, mat2, factors)


@row(functions("addmv"))
def _addmv(input: Tensor, mat: Tensor, vec: Tensor, **factors: Any) -> Tensor:
    with cast_as_mv(mat):
        return _sum("addmv", input, torch.mv(mat, vec), **factors)


@row(functions("baddbmm"))
def _baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, out_dtype: Any = None, **factors: Any
) -> Tensor:
    check_no_dtype("baddbmm", out_dtype, input, batch1, batch2)
    return _sum_with_product(torch.baddbmm, torch.bmm, input, batch1, batch2, factors)


@row(functions("addbmm"))
def _addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, **factors: Any) -> Tensor:
    return _sum_with_product(torch.addbmm, _sum_of_bmm, input, batch1, batch2, factors)


def _add_product(
    name: str, function: Function, self: Tensor, a: Tensor, b: Tensor, factors: dict[str, Any]
) -> Tensor:
    """Add a product to ``self`` in place; it is computed in the type of that where it is A A^T."""
    with without_autocast(stored_of(self).device.type):
        product = None
        if isinstance(self, PackedTensor) and a.dim() == (2 if function is torch.mm else 3):
            alpha = factors.get("alpha", 1)
            scaled = type(alpha) in (int, float)
            product = product_for(self, a, b, alpha if scaled else 1)
            if product is not None and scaled:
                factors = {**factors, "alpha": 1}
        if product is None:
            product = function(a, b)
        return _sum_in_place(name, self, product, **factors)


@row(functions("addmm_", Tensor), how="passed")
def _addmm_in_place(self: Tensor, mat1: Tensor, mat2: Tensor, **factors: Any) -> Tensor:
    return _add_product("addmm_", torch.mm, self, mat1, mat2, factors)


@row(functions("addmv_", Tensor), how="passed")
def _addmv_in_place(self: Tensor, mat: Tensor, vec: Tensor, **factors: Any) -> Tensor:
    with without_autocast(self.device.type):
        return _sum_in_place("addmv_", self, torch.mv(mat, vec), **factors)


@row(functions("baddbmm_", Tensor), how="passed")
def _baddbmm_in_place(self: Tensor, batch1: Tensor, batch2: Tensor, **factors: Any) -> Tensor:
    return _add_product("baddbmm_", torch.bmm, self, batch1, batch2, factors)


@row(functions("addbmm_", Tensor), how="passed")
def _addbmm_in_place(self: Tensor, batch1: Tensor, batch2: Tensor, **factors: Any) -> Tensor:
    with without_autocast(self.device.type):
        return _sum_in_place("addbmm_", self, _sum_of_bmm(batch1, batch2), **factors)


@row(torch.nn.functional.linear)
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if weight.dim() > 2:
        raise ValueError(
            f"[linear] expected a weight of one or two dimensions; got {describe(weight)}"
        )
    product = input @ (weight.mT if weight.dim() == 2 else weight)
    return product if bias is None else _added(product, _cast("linear", bias, product))
