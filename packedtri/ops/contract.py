"""Contractions on packed storage: ``einsum``, ``tensordot``, ``inner``, chains of matrices.

Each dimension of an operand has a label, and a label that the result lacks is summed over. What
concerns one operand alone, its diagonals and sums, comes first; then two at a time are contracted.
Where two operands share a single summed label that belongs to the matrices of a packed one, the
contraction is a product of the table of ``torch.matmul``. Where none is summed and the result has
the matrices of a packed one, it is a product of the table of ``torch.mul``. Where the matrices stay
whole, or both of their labels are summed over in two packed operands, the stored elements are one
dimension. Other contractions convert to dense.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from itertools import chain, combinations
from math import prod
from string import ascii_letters
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, _tracing
from packedtri._bands import halve_diagonal
from packedtri.dispatch import row
from packedtri.layout import HERMITIAN, LOWER, MIRRORED
from packedtri.ops.dense import as_dense, check_tensors, densify, functions, shape_of
from packedtri.ops.lost_writes import watch
from packedtri.tensor import PackedTensor

Labels = tuple[Hashable, ...]
# What takes the place of the two labels of matrices: no letter, as those of equations are.
_ELEMENTS = "elements"
_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")
# Up to so many stored elements of all operands it takes longer to see what an equation reduces to
# than to unpack them, unless it is one product.
_LITTLE = 1 << 15


def contract(a: Tensor, a_labels: Labels, b: Tensor, b_labels: Labels, out: Labels) -> Any:
    """The contraction of two operands, of which one is packed; None where it needs a dense one.

    Args:
        a: the first operand.
        a_labels: of its dimensions, each of which has another.
        b: the second operand.
        b_labels: of its dimensions, likewise.
        out: the labels of the result, in their order.
    """
    if not isinstance(a, PackedTensor):
        a, a_labels, b, b_labels = b, b_labels, a, a_labels
    labels = {*a_labels, *b_labels}
    summed = labels.difference(out)
    distinct = all(len(set(x)) == len(x) for x in (a_labels, b_labels, out))
    if not distinct or not labels.issuperset(out):
        return None
    if not summed:
        return _elementwise(a, a_labels, b, b_labels, out)
    if len(summed) == 1:
        result = _product(a, a_labels, b, b_labels, summed.pop(), out)
        if result is not None:
            return result
    return _by_elements(a, a_labels, b, b_labels, out)


def _product(a: Any, a_labels: Labels, b: Any, b_labels: Labels, k: Hashable, out: Labels) -> Any:
    """The contraction as a product of matrices, which sums over ``k``, or None."""
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


def _by_elements(a: Any, a_labels: Labels, b: Any, b_labels: Labels, out: Labels) -> Any:
    """The contraction with the stored elements for one dimension of a packed operand, or None."""
    matrix, batch = a_labels[-2:], a_labels[:-2]
    if a.dtype != b.dtype:
        return None
    if isinstance(b, PackedTensor):
        if {*b_labels[-2:]} != {*matrix} or {*matrix} & {*out}:
            return None
        pair = _alike(a, b if b_labels[-2:] == matrix else b.mT)
        return _inner_products(*pair, batch, b_labels[:-2], out) if pair else None
    whole = {*out[-2:]} == {*matrix} and not {*matrix} & {*b_labels}
    if not whole or (a.kind == HERMITIAN and b.is_complex()):
        return None
    a = a if out[-2:] == matrix else a.mT
    elements, labels = _nodes.to_packed(a), (*batch, _ELEMENTS)
    packed = _dense_pair(elements, labels, b, b_labels, (*out[:-2], _ELEMENTS))
    return _nodes.from_packed(type(a), packed, a.n)


def _alike(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Two matrices as triangles, or as mirrored ones alike, for products of their elements."""
    if a.n != b.n:
        return None
    triangles = [t for t in (a, b) if t.kind not in MIRRORED]
    if len(triangles) == 1:
        # What is beside the triangle is multiplied by zeros.
        cut = torch.tril if triangles[0].kind == LOWER else torch.triu
        a, b = (cut(t) if t.kind in MIRRORED else t for t in (a, b))
    return (a, b) if a.kind == b.kind or a.kind not in MIRRORED else None


def _inner_products(
    a: PackedTensor, b: PackedTensor, a_batch: Labels, b_batch: Labels, out: Labels
) -> Tensor:
    """The sums of the products of all elements of matrices that are alike."""
    if a.kind == b.kind:
        p, q = _nodes.to_packed(a), _nodes.to_packed(b)
    else:
        # A lower and an upper triangle have the diagonal in common.
        p, q = (torch.diagonal(t, 0, -2, -1) for t in (a, b))
    if a.kind in MIRRORED:
        # Doubled before the sum the elements could overflow.
        p = halve_diagonal(p, a.n, a.kind)
    sums = _dense_pair(p, (*a_batch, _ELEMENTS), q, (*b_batch, _ELEMENTS), out)
    if a.kind == HERMITIAN:
        sums = sums.real.to(sums.dtype)
    return 2 * sums if a.kind in MIRRORED else sums


def _dense_pair(x: Tensor, x_labels: Labels, y: Tensor, y_labels: Labels, out: Labels) -> Tensor:
    """What torch makes of two operands; packed ones are converted."""
    return densify(torch.einsum, _equation([x_labels, y_labels], out), x, y)


def _equation(terms: Sequence[Labels], out: Labels) -> str:
    """What ``torch.einsum`` is told of operands with these labels, whatever they are."""
    letters = dict(zip(dict.fromkeys(chain(*terms)), ascii_letters, strict=False))
    *inputs, output = ("".join(letters[label] for label in labels) for labels in (*terms, out))
    return f"{','.join(inputs)}->{output}"


# ----------------------------------------------------------------------------------- the functions


@row(torch.einsum)
def _einsum(equation: Any, *operands: Any) -> Tensor:
    given = (
        operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    )
    labels = None
    if isinstance(equation, str):
        check_tensors("einsum", "operands", given)
        labels = _labels_of(equation.replace(" ", ""), [x.dim() for x in given])
    result = None
    if labels is not None and _is_little(given, labels[1]):
        unpacked = {id(x): as_dense(x) for x in given}  # Once, where one is given twice.
        result = torch.einsum(equation, *(unpacked[id(x)] for x in given))
    elif labels is not None:
        result = _contracted(given, *labels)
    if result is None:
        result = densify(torch.einsum, equation, *operands)
    if labels is not None and len(given) == 1 and {*labels[1]} >= {*labels[0][0]}:
        # Nothing is summed: torch gives a view.
        watch("torch.einsum", result, given[0])
    return result


def _is_little(operands: Sequence[Any], out: Labels) -> bool:
    """Whether dense operands are faster for a result that has too few dimensions for a type."""
    if _tracing.is_compiling() or len(out) > (1 if len(operands) != 2 else 0):
        return False
    return sum(x._packed.numel() for x in operands if isinstance(x, PackedTensor)) <= _LITTLE


def _contracted(operands: Sequence[Any], terms: Sequence[Labels], out: Labels) -> Any:
    """The contraction two operands at a time; None where torch should judge it or its sizes."""
    sizes: dict[Hashable, int] = {}
    for x, labels in zip(operands, terms, strict=True):
        for label, size in zip(labels, shape_of(x), strict=True):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                return None
    if len({*out}) < len(out) or not sizes.keys() >= {*out}:
        return None
    parts: list[tuple[Any, Labels]] = []
    for at, (x, labels) in enumerate(zip(operands, terms, strict=True)):
        alone = _alone(x, labels, {*out}.union(*terms[:at], *terms[at + 1 :]))
        if alone is None:
            return None
        parts.append(alone)
    while len(parts) > 1:
        steps = [_step(parts, pair, out) for pair in combinations(range(len(parts)), 2)]
        # The first of those with the smallest result.
        (i, j), kept = min(steps, key=lambda step: prod(sizes[label] for label in step[1]))
        (x, x_labels), (y, y_labels) = parts[i], parts[j]
        types = any(isinstance(t, PackedTensor) for t in (x, y))
        result = contract(x, x_labels, y, y_labels, kept) if types else None
        if result is None:
            result = _dense_pair(x, x_labels, y, y_labels, kept)
        parts = [(result, kept), *(part for at, part in enumerate(parts) if at not in (i, j))]
    ((x, labels),) = parts
    return x if labels == out else torch.permute(x, [labels.index(label) for label in out])


def _step(
    parts: Sequence[tuple[Any, Labels]], pair: tuple[int, int], out: Labels
) -> tuple[tuple[int, int], Labels]:
    """A pair of operands, and the labels of what they give."""
    if len(parts) == 2:
        return pair, out
    others = (labels for at, (_, labels) in enumerate(parts) if at not in pair)
    wanted = {*out}.union(*others)
    labels = dict.fromkeys(label for at in pair for label in parts[at][1] if label in wanted)
    # Those of matrices come last, as types have them.
    matrices = {label for x, at in parts if isinstance(x, PackedTensor) for label in at[-2:]}
    return pair, tuple(sorted(labels, key=lambda label: label in matrices))


def _alone(x: Any, labels: Labels, wanted: Iterable[Hashable]) -> tuple[Any, Labels] | None:
    """An operand with each label once, of those that are ``wanted`` elsewhere; the others summed.

    None where the matrices of a packed one have a label with a batch dimension in common.
    """
    kept = tuple(dict.fromkeys(label for label in labels if label in wanted))
    if kept == labels:
        return x, labels
    if isinstance(x, PackedTensor):
        if len({*labels}) == len(labels):
            return x.sum([d for d, label in enumerate(labels) if label not in kept]), kept
        if labels[-2] != labels[-1]:
            return None
        x, labels = torch.diagonal(x, 0, -2, -1), labels[:-1]
    return torch.einsum(_equation([labels], kept), x), kept


def _labels_of(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels] | None:
    """Labels of the operands and of the result; None where torch should judge the equation."""
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks) or not all(map(_TERM.fullmatch, (*terms, output))):
        return None
    missing = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    if any(m < 0 or (m > 0 and "..." not in t) for t, m in zip(terms, missing, strict=True)):
        return None
    if not arrow:
        letters = inputs.replace(",", "").replace("...", "")
        output = "..." + "".join(sorted(c for c in letters if letters.count(c) == 1))
    found = [_expand(term, count) for term, count in zip(terms, missing, strict=True)]
    return found, _expand(output, max(missing))


def _expand(term: str, count: int) -> Labels:
    """The labels of a term; those of an ellipsis are numbers, counted from the right."""
    before, dots, after = term.partition("...")
    return (*before, *(range(count, 0, -1) if dots else ()), *after)


@row(functions("tensordot", torch))
def _tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    check_tensors("tensordot", "a and b", (a, b))
    summed = _summed_dimensions(a, b, dims)
    if summed is not None:
        result = _dot_dimensions(a, summed[0], b, summed[1])
        if result is not None:
            return result
    return densify(torch.tensordot, a, b, dims)


def _summed_dimensions(a: Tensor, b: Tensor, dims: Any) -> Any:
    """The dimensions of a and those of b that tensordot sums over.

    None where these are no dimensions that there are, which torch says.
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        fits = 0 <= dims <= min(a.dim(), b.dim())
        return (range(-dims, 0), range(dims)) if fits else None
    if not isinstance(dims, (list, tuple)) or len(dims) != 2:
        return None
    if not all(isinstance(d, (list, tuple)) for d in dims) or len(dims[0]) != len(dims[1]):
        return None
    for x, given in zip((a, b), dims, strict=True):
        there = all(-x.dim() <= d < x.dim() for d in given)
        if not there or len({d % x.dim() for d in given}) < len(given):
            return None
    return dims


@row(functions("inner"))
def _inner(input: Tensor, other: Tensor) -> Tensor:
    if input.shape[-1:] == other.shape[-1:] and 0 < other.dim() <= 2:
        # The rows of one matrix, or one vector.
        return input @ (other.mT if other.dim() == 2 else other)
    if min(input.dim(), other.dim()) > 0:
        result = _dot_dimensions(input, [-1], other, [-1])
        if result is not None:
            return result
    return densify(torch.inner, input, other)


def _dot_dimensions(a: Tensor, i: Sequence[int], b: Tensor, j: Sequence[int]) -> Any:
    """The sum over dimensions i of a and j of b; the result has the others, those of a first."""
    a_labels = [("a", d) for d in range(a.dim())]
    b_labels = [("b", d) for d in range(b.dim())]
    for at, (a_dim, b_dim) in enumerate(zip(i, j, strict=True)):
        a_labels[a_dim] = b_labels[b_dim] = ("summed", at)
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
