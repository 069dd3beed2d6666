"""Contractions that are matrix products: ``einsum``, ``tensordot``, ``inner``, chains of matrices.

Each dimension of an operand has a label, and a label that the result lacks is summed over. Where
two operands share a single summed label that belongs to the matrices of a packed one, the
contraction is a product of the table of ``torch.matmul``. Where none is summed and the result has
the matrices of a packed one, it is a product of the table of ``torch.mul``. Other contractions
convert to dense.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from packedtri import _tracing
from packedtri.dispatch import row
from packedtri.ops.dense import check_tensors, densify, functions
from packedtri.ops.lost_writes import watch
from packedtri.tensor import PackedTensor

Labels = tuple[Hashable, ...]


def contract(a: Tensor, a_labels: Labels, b: Tensor, b_labels: Labels, out: Labels) -> Any:
    """The contraction as a product of matrices or an elementwise one, or None where it is none."""
    if not isinstance(a, PackedTensor):
        a, a_labels, b, b_labels = b, b_labels, a, a_labels
    labels = {*a_labels, *b_labels}
    summed = labels.difference(out)
    distinct = all(len(set(x)) == len(x) for x in (a_labels, b_labels, out))
    if not distinct or not labels.issuperset(out):
        return None
    if not summed:
        return _elementwise(a, a_labels, b, b_labels, out)
    if len(summed) != 1:
        return None
    (k,) = summed
    if k not in a_labels[-2:] or k not in b_labels:
        return None
    if a.shape[a_labels.index(k)] != b.shape[b_labels.index(k)]:
        # Torch broadcasts a dimension of length one here, or raises.
        return None
    kept = a_labels[-1] if k == a_labels[-2] else a_labels[-2]
    if kept in b_labels:
        return None
    # As a left operand the packed matrix has the rows that are kept and the columns k.
    left = a if k == a_labels[-1] else a.mT
    if isinstance(b, PackedTensor):
        return _packed_pair(left, (*a_labels[:-2], kept), b, b_labels, k, out)
    return _packed_dense(left, (*a_labels[:-2], kept), b, b_labels, k, out)


def _packed_pair(
    left: Tensor, kept: Labels, b: Tensor, b_labels: Labels, k: Hashable, out: Labels
) -> Any:
    """``kept`` are the labels of the left operand but the summed one."""
    if k not in b_labels[-2:]:
        return None
    right, other = (b, b_labels[-1]) if k == b_labels[-2] else (b.mT, b_labels[-2])
    batches = sorted((kept[:-1], b_labels[:-2]), key=len)
    if batches[1][len(batches[1]) - len(batches[0]) :] != batches[0]:
        return None
    if out == (*batches[1], kept[-1], other):
        return left @ right
    # The transpose of a typed product is typed as well.
    return right.mT @ left.mT if out == (*batches[1], other, kept[-1]) else None


def _packed_dense(
    left: Tensor, kept: Labels, x: Tensor, x_labels: Labels, k: Hashable, out: Labels
) -> Tensor:
    batch, free = kept[:-1], [label for label in x_labels if label not in (*kept, k)]
    size = dict(zip(x_labels, x.shape, strict=True))
    shared = [label for label in x_labels if label in batch]
    # All labels that only x has are one dimension of the product, after k or, where the result
    # ends with the kept label, before it: then the product has the order of the result.
    last = bool(out) and out[-1] == kept[-1]
    order = [*sorted(shared, key=batch.index), *((*free, k) if last else (k, *free))]
    x = x.permute([x_labels.index(label) for label in order])
    columns, rows = prod(size[label] for label in free), size[k]
    matrix = (columns, rows) if last else (rows, columns)
    x = x.reshape(*(size.get(label, 1) for label in batch), *matrix)
    product = x @ left.mT if last else left @ x
    free_shape = [size[label] for label in free]
    n = left.shape[-1]
    inner = (*free_shape, n) if last else (n, *free_shape)
    product = product.reshape(*product.shape[:-2], *inner)
    labels = (*batch, *free, kept[-1]) if last else (*kept, *free)
    return product.permute([labels.index(label) for label in out])


def _elementwise(a: Tensor, a_labels: Labels, b: Tensor, b_labels: Labels, out: Labels) -> Any:
    sizes = dict(zip(a_labels, a.shape, strict=True))
    pairs = [(sizes[at], n) for at, n in zip(b_labels, b.shape, strict=True) if at in sizes]
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        # Torch says which.
        return None
    x, y = _placed(a, a_labels, out), _placed(b, b_labels, out)
    return None if x is None or y is None else x * y


def _placed(x: Tensor, labels: Labels, out: Labels) -> Tensor | None:
    """An operand with its dimensions where the result has them, None where a type cannot be so."""
    if not isinstance(x, PackedTensor):
        order = [labels.index(label) for label in out if label in labels]
        return x.permute(order)[tuple(slice(None) if at in labels else None for at in out)]
    if labels[-2:] != out[-2:]:
        x, labels = x.mT, (*labels[:-2], labels[-1], labels[-2])
    return x if out[len(out) - len(labels) :] == labels else None


# ----------------------------------------------------------------------------------- the functions


@row(torch.einsum)
def _einsum(equation: Any, *operands: Any) -> Tensor:
    given = (
        operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    )
    if isinstance(equation, str):
        check_tensors("einsum", "operands", given)
    if isinstance(equation, str) and len(given) == 1:
        dims = _permutation(equation.replace(" ", ""), given[0].dim())
        if dims is not None:
            return torch.permute(given[0], dims)
    if isinstance(equation, str) and len(given) == 2:
        labels = _labels_of(equation.replace(" ", ""), [x.dim() for x in given])
        result = None if labels is None else contract(given[0], labels[0], given[1], *labels[1:])
        if result is not None:
            return result
    result = densify(torch.einsum, equation, *operands)
    if len(given) == 1 and isinstance(given[0], PackedTensor) and _is_view(result):
        watch("torch.einsum", result, given[0])
    return result


def _is_view(x: Tensor) -> bool:
    """Whether torch gives elements of an operand; watched is nothing that is traced."""
    return not _tracing.is_compiling() and x._is_view()


def _permutation(equation: str, rank: int) -> list[int] | None:
    """The dimensions in the order of the result, where one operand has each label once."""
    term, arrow, output = equation.partition("->")
    distinct = term.isalpha() and len(set(term)) == len(term) == rank
    if not arrow or not distinct or sorted(term) != sorted(output):
        return None
    return [term.index(label) for label in output]


def _labels_of(equation: str, ranks: Sequence[int]) -> tuple[Labels, Labels, Labels] | None:
    """Labels of the operands and of the result; None where torch should judge the equation."""
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    missing = [
        rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=False)
    ]
    wrong = any(m < 0 or (m > 0 and "..." not in t) for t, m in zip(terms, missing, strict=False))
    if len(terms) != 2 or wrong:
        return None
    if not arrow:
        letters = inputs.replace(",", "").replace("...", "")
        output = "..." + "".join(sorted(c for c in letters if letters.count(c) == 1))
    a, b = (_expand(term, count) for term, count in zip(terms, missing, strict=True))
    return a, b, _expand(output, max(missing))


def _expand(term: str, count: int) -> Labels:
    """The labels of a term; those of an ellipsis are numbers, counted from the right."""
    before, dots, after = term.partition("...")
    return (*before, *(range(count, 0, -1) if dots else ()), *after)


@row(functions("tensordot", torch))
def _tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    check_tensors("tensordot", "a and b", (a, b))
    pair = _summed_pair(a, b, dims)
    if pair is not None:
        result = _dot_dimensions(a, pair[0], b, pair[1])
        if result is not None:
            return result
    return densify(torch.tensordot, a, b, dims)


def _summed_pair(a: Tensor, b: Tensor, dims: Any) -> tuple[int, int] | None:
    """The dimensions of a and b that tensordot sums over, where it is one of each."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        return (-1, 0) if dims == 1 and min(a.dim(), b.dim()) > 0 else None
    # What is no pair of dimensions that there are is left to torch, which says so.
    if not isinstance(dims, (list, tuple)) or len(dims) != 2:
        return None
    if not all(isinstance(d, (list, tuple)) and len(d) == 1 for d in dims):
        return None
    (i,), (j,) = dims
    return (i, j) if -a.dim() <= i < a.dim() and -b.dim() <= j < b.dim() else None


@row(functions("inner"))
def _inner(input: Tensor, other: Tensor) -> Tensor:
    if input.shape[-1:] == other.shape[-1:] and 0 < other.dim() <= 2:
        # The rows of one matrix, or one vector.
        return input @ (other.mT if other.dim() == 2 else other)
    if min(input.dim(), other.dim()) > 0:
        result = _dot_dimensions(input, -1, other, -1)
        if result is not None:
            return result
    return densify(torch.inner, input, other)


def _dot_dimensions(a: Tensor, i: int, b: Tensor, j: int) -> Any:
    """The sum over dimension i of a and j of b; the result has the others, those of a first."""
    a_labels = [("a", d) for d in range(a.dim())]
    b_labels = [("b", d) for d in range(b.dim())]
    a_labels[i] = b_labels[j] = ("summed", 0)
    out = [label for label in (*a_labels, *b_labels) if label[0] != "summed"]
    return contract(a, tuple(a_labels), b, tuple(b_labels), tuple(out))


@row(functions("chain_matmul", torch))
def _chain_matmul(*matrices: Tensor) -> Tensor:
    check_tensors("chain_matmul", "matrices", matrices)
    return matrices[0] if len(matrices) == 1 else _multi_dot(matrices)


@row(torch.linalg.multi_dot)
def _multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    inner = all(x.dim() == 2 for x in tensors[1:-1])
    if len(tensors) < 2 or not inner or any(x.dim() not in (1, 2) for x in tensors):
        return densify(torch.linalg.multi_dot, list(tensors))
    first, last = tensors[0], tensors[-1]
    sizes = [1] if first.dim() == 1 else [first.shape[0]]
    sizes += [x.shape[0] for x in tensors[1:]] + [1 if last.dim() == 1 else last.shape[1]]
    return _multiplied(tensors, _splits(tuple(sizes)), 0, len(tensors))


def _splits(sizes: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Where to split each run of a chain of matrices, sizes[i] x sizes[i + 1], for the least work.

    Source:
        Cormen, Leiserson, Rivest and Stein, Introduction to Algorithms, section 15.2.
    """
    at: dict[tuple[int, int], int] = {}

    @cache
    def cost(i: int, j: int) -> int:
        if j - i == 1:
            return 0
        work = {
            s: cost(i, s) + cost(s, j) + sizes[i] * sizes[s] * sizes[j] for s in range(i + 1, j)
        }
        at[i, j] = min(work, key=lambda s: work[s])
        return work[at[i, j]]

    cost(0, len(sizes) - 1)
    return at


def _multiplied(
    tensors: Sequence[Tensor], at: dict[tuple[int, int], int], i: int, j: int
) -> Tensor:
    if j - i == 1:
        return tensors[i]
    split = at[i, j]
    return _multiplied(tensors, at, i, split) @ _multiplied(tensors, at, split, j)
