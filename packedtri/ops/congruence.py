"""Congruences F P F^T of symmetric and Hermitian matrices."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor

from packedtri._values import describe
from packedtri.ops.dense import stored_of
from packedtri.ops.gram import mirrored_product
from packedtri.ops.matmul import check_elements
from packedtri.ops.solve import check_batches
from packedtri.tensor import Hermitian, Symmetric

S = TypeVar("S", Symmetric, Hermitian)


def congruence(
    F: Tensor,
    P: S,
    *,
    alpha: float | Tensor = 1,
    beta: float | Tensor | None = None,
    C: Symmetric | Hermitian | None = None,
    trans: bool = False,
    out: Tensor | None = None,
) -> S:
    """``alpha F P F^T + beta C``, and with ``F^H`` for a Hermitian P, as a filter predicts.

    Of the second product, of ``F P`` and ``F^T``, one triangle is computed and stored, so that the
    result is symmetric whatever the rounding. That it is semidefinite where ``P`` is holds but for
    rounding: of a P that is given by its factor, as L L^T, take ``syrk(F @ L)``, or :func:`tria`
    of ``F @ L`` for the factor of the result.

    Args:
        F: shape (*batch, m, n), a dense matrix or a packed type.
        P: shape (*batch, n, n); batches broadcast. A complex Symmetric is not conjugated.
        alpha: factor of the product, a number or a tensor of no dimensions; real for a Hermitian.
        beta: factor of ``C`` like it, 1 unless told. With the number 0, ``C`` is not read, so nan
            stays out.
        C: shape (*batch, m, m), of the type of ``P``, added to the product.
        trans: multiply ``F^T P F`` instead, for ``F`` of shape (*batch, n, m).
        out: shape (*batch, m, m), a matrix of the result's type or a dense tensor, which takes the
            result and is returned; it may be ``P`` or ``C`` itself.

    Returns:
        shape (*batch, m, m), of the type of ``P``.

    Raises:
        TypeError: when ``P`` is neither Symmetric nor Hermitian, ``F`` no tensor, ``C`` not of the
            type of ``P``, or a factor has dimensions or, for a Hermitian, is complex.
        ValueError: when shapes, dtypes or devices do not match, or ``beta`` comes without ``C``.
        RuntimeError: when autograd would have to record the change of ``out``.

    Example:
        >>> import torch, packedtri
        >>> F, P = torch.tensor([[1.0, 1.0], [0.0, 1.0]]), packedtri.Symmetric.eye(2)
        >>> packedtri.congruence(F, P)
        Symmetric([[2., 1.],
                   [1., 1.]])
        >>> packedtri.congruence(F, P, C=P, beta=0.5).packed
        tensor([2.5000, 1.0000, 1.5000])
    """
    name = "congruence"
    _check(name, F, P, trans)
    product = P @ F if trans else F @ P
    return mirrored_product(name, type(P), product, F, trans, alpha, beta, C, out)


def _check(name: str, F: Any, P: Any, trans: bool) -> None:
    if not isinstance(P, (Symmetric, Hermitian)):
        raise TypeError(f"[{name}] expected a Symmetric or Hermitian for P; got {describe(P)}")
    if not isinstance(F, Tensor):
        raise TypeError(f"[{name}] expected a tensor for F; got {describe(F)}")
    if F.dim() < 2 or F.shape[-2 if trans else -1] != P.n:
        expected = f"(..., {P.n}, m)" if trans else f"(..., m, {P.n})"
        raise ValueError(
            f"[{name}] expected F of shape {expected} for {describe(P)}; got {describe(F)}"
        )
    check_elements(name, F, P, stored_of(F), P._packed)
    check_batches(name, F, P, F.shape[:-2], P.shape[:-2])
