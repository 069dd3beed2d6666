"""The transforms of ``torch.func`` for functions that take and return packed types.

torch's own transforms hide the type of a tensor from the function that they are given. These hand
its stored elements through, and build the type on both sides. Derivatives are those of the matrix,
as autograd's are: the gradient of a ``Symmetric`` is symmetric, and an element beside its diagonal
does not count twice.

Example:
    >>> import torch
    >>> from packedtri import LowerTriangular, func
    >>> L, x = LowerTriangular(torch.ones(4, 3)), torch.ones(2)
    >>> func.vmap(lambda L: L @ x)(L).shape
    torch.Size([4, 2])
    >>> func.grad(lambda L: (L @ x).sum())(L[0])
    LowerTriangular([[1.,  .],
                     [1., 1.]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from packedtri._bands import scale_off_diagonal
from packedtri._values import describe
from packedtri.layout import MIRRORED
from packedtri.ops.dense import as_dense
from packedtri.tensor import PackedTensor

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap"]

_pack = torch.ops.packedtri.pack.default
Function = Callable[..., Any]


class _Elements:
    """What stands for a packed matrix in the trees that torch's transforms see: its elements."""

    def __init__(self, packed: Any, cls: type[PackedTensor]) -> None:
        self.packed, self.cls = packed, cls


pytree.register_pytree_node(
    _Elements, lambda x: ([x.packed], x.cls), lambda parts, cls: _Elements(next(iter(parts)), cls)
)


def _taken_apart(tree: Any) -> Any:
    """The same tree with elements in the place of types."""
    return pytree.tree_map_only(PackedTensor, lambda t: _Elements(t.packed, type(t)), tree)


def _map_elements(tree: Any, function: Callable[[_Elements], Any]) -> Any:
    return pytree.tree_map(
        lambda x: function(x) if isinstance(x, _Elements) else x,
        tree,
        is_leaf=lambda x: isinstance(x, _Elements),
    )


def _built(tree: Any) -> Any:
    """The same tree with types again."""
    return _map_elements(tree, lambda x: x.cls(x.packed))


def _gradients(tree: Any) -> Any:
    """The same, of gradients by stored elements, of which some stand for two."""

    def project(x: _Elements) -> PackedTensor:
        made = x.cls(x.packed)
        if made.kind not in MIRRORED:
            return made
        return x.cls(scale_off_diagonal(made.packed, 0.5, made.n, made.kind))

    return _map_elements(tree, project)


def _inner(func: Function) -> Function:
    """``func`` as torch's transforms are given it, by elements."""

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _taken_apart(func(*_built(args), **_built(kwargs)))

    return call


def _dense_inner(func: Function, has_aux: bool) -> Function:
    """The same with dense results, but for what comes beside them."""

    def dense(tree: Any) -> Any:
        return pytree.tree_map_only(Tensor, as_dense, tree)

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = func(*_built(args), **_built(kwargs))
        return (dense(found[0]), _taken_apart(found[1])) if has_aux else dense(found)

    return call


def _of_types(func: Function, transformed: Function, pair: bool) -> Function:
    """A transform of ``func`` by elements as one of types.

    Args:
        func: whose name the result has.
        transformed: returns gradients, or with ``pair`` these and something beside them.
        pair: whether there is something beside them.
    """

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = transformed(*_taken_apart(args), **_taken_apart(kwargs))
        return (_gradients(found[0]), _built(found[1])) if pair else _gradients(found)

    return call


class _Mapped(NamedTuple):
    """An argument of ``vmap``, and the dimension of it that is mapped, in terms of its elements."""

    value: Any
    dim: Any


def _mapped(value: Any, dim: Any) -> _Mapped:
    if not isinstance(value, PackedTensor):
        return _Mapped(value, dim)
    batch = value.dim() - 2
    if not isinstance(dim, int):
        return _Mapped(_Elements(value.packed, type(value)), dim)
    if not -value.dim() <= dim < batch or (dim < 0 and dim + value.dim() >= batch):
        raise ValueError(
            f"[packedtri.func.vmap] in_dims {dim} is no batch dimension of {describe(value)}. Rows "
            "and columns are mapped over in .to_dense()"
        )
    return _Mapped(_Elements(value.packed, type(value)), dim + value.dim() if dim < 0 else dim)


def _check_out_dims(found: Any, out_dims: Any) -> None:
    leaves, spec = pytree.tree_flatten(found)
    dims = pytree._broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        return  # Torch says what does not fit.
    for x, dim in zip(leaves, dims, strict=True):
        if isinstance(x, PackedTensor) and isinstance(dim, int) and not 0 <= dim <= x.dim() - 2:
            raise ValueError(
                f"[packedtri.func.vmap] out_dims {dim} is no batch dimension of results "
                f"{describe(x)}; expected one from 0 to {x.dim() - 2}"
            )


def vmap(
    func: Function,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Function:
    """torch.vmap of a function of packed types.

    Args:
        func: takes and returns tensors, packed types among them, in any nesting of containers.
        in_dims: which dimension of each argument is mapped, as for torch.vmap; of packed types one
            of the batch.
        out_dims: where it is in the results; of packed types a batch dimension, counted from the
            front.
        randomness: as for torch.vmap.
        chunk_size: as for torch.vmap.

    Returns:
        A function of arguments with one more dimension.

    Raises:
        ValueError: when rows or columns of a packed type are named, and as torch.vmap does.

    Example:
        >>> from packedtri import LowerTriangular
        >>> L = LowerTriangular(torch.ones(4, 3))
        >>> vmap(torch.linalg.inv)(L).shape
        torch.Size([4, 2, 2])

    Source:
        torch.vmap.
    """

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten(args)
        dims = pytree._broadcast_to_and_flatten(in_dims, spec) if leaves else []
        if dims is None:
            raise ValueError(
                f"[packedtri.func.vmap] in_dims {in_dims} do not have the structure of the "
                f"arguments, {spec}"
            )
        mapped = [_mapped(*pair) for pair in zip(leaves, dims, strict=True)]

        def inner(*values: Any, **named: Any) -> Any:
            found = func(*pytree.tree_unflatten(list(_built(values)), spec), **_built(named))
            _check_out_dims(found, out_dims)
            return _taken_apart(found)

        transformed = torch.vmap(
            inner, tuple(m.dim for m in mapped), out_dims, randomness, chunk_size=chunk_size
        )
        return _built(transformed(*(m.value for m in mapped), **_taken_apart(kwargs)))

    return call


def grad(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """torch.func.grad of a function of packed types: gradients have the types of the arguments.

    Args:
        func: returns a tensor without dimensions; with ``has_aux`` also anything else.
        argnums: which arguments the gradients are of.
        has_aux: whether ``func`` returns something beside it.

    Returns:
        A function that returns the gradients, and with ``has_aux`` what ``func`` returns beside.

    Raises:
        RuntimeError: as torch.func.grad does.

    Example:
        >>> from packedtri import LowerTriangular
        >>> grad(lambda L: (L @ L).sum())(LowerTriangular(torch.ones(3)))
        LowerTriangular([[3.,  .],
                         [2., 3.]])

    Source:
        torch.func.grad.
    """
    return _of_types(func, torch.func.grad(_inner(func), argnums, has_aux), has_aux)


def grad_and_value(
    func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Function:
    """As :func:`grad`, with the value: torch.func.grad_and_value.

    Args:
        func: as for :func:`grad`.
        argnums: as for :func:`grad`.
        has_aux: as for :func:`grad`.

    Returns:
        A function that returns the gradients and the value, with ``has_aux`` a pair of the value
        and what ``func`` returns beside.

    Raises:
        RuntimeError: as torch.func.grad_and_value does.

    Example:
        >>> from packedtri import LowerTriangular
        >>> grad_and_value(lambda L: L.sum())(LowerTriangular(torch.ones(3)))[1]
        tensor(3.)

    Source:
        torch.func.grad_and_value.
    """
    transformed = torch.func.grad_and_value(_inner(func), argnums, has_aux)
    return _of_types(func, transformed, pair=True)


def _jacobian(
    transform: Function, func: Function, argnums: Any, has_aux: bool, **options: Any
) -> Function:
    transformed = transform(_dense_inner(func, has_aux), argnums, has_aux=has_aux, **options)
    return _of_types(func, transformed, has_aux)


def jacrev(
    func: Function,
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Function:
    """torch.func.jacrev of a function of packed types, by reverse mode.

    Args:
        func: its results are taken for dense matrices.
        argnums: which arguments the Jacobians are of.
        has_aux: whether ``func`` returns a pair, of which the second is handed through.
        chunk_size: how many rows of the Jacobians are computed at a time, all by default.

    Returns:
        A function that returns the Jacobians. Where an argument has shape (n, n) and a result has
        shape (*out), that is one of the argument's type, of shape (*out, n, n).

    Raises:
        RuntimeError: as torch.func.jacrev does.
        ValueError: when ``chunk_size`` is not positive.

    Example:
        >>> from packedtri import LowerTriangular
        >>> jacrev(lambda L: L @ torch.ones(2))(LowerTriangular(torch.ones(3))).shape
        torch.Size([2, 2, 2])

    Source:
        torch.func.jacrev.
    """
    return _jacobian(torch.func.jacrev, func, argnums, has_aux, chunk_size=chunk_size)


def jacfwd(
    func: Function,
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Function:
    """As :func:`jacrev`, by forward mode: torch.func.jacfwd.

    Args:
        func: as for :func:`jacrev`.
        argnums: as for :func:`jacrev`.
        has_aux: as for :func:`jacrev`.
        randomness: of ``func``, as for torch.vmap.

    Returns:
        A function that returns the Jacobians, as :func:`jacrev` does.

    Raises:
        RuntimeError: as torch.func.jacfwd does.

    Example:
        >>> from packedtri import LowerTriangular
        >>> jacfwd(lambda L: L @ torch.ones(2))(LowerTriangular(torch.ones(3))).shape
        torch.Size([2, 2, 2])

    Source:
        torch.func.jacfwd.
    """
    return _jacobian(torch.func.jacfwd, func, argnums, has_aux, randomness=randomness)


def hessian(func: Function, argnums: int | tuple[int, ...] = 0) -> Function:
    """The Jacobian of the Jacobian, by forward over reverse mode: torch.func.hessian.

    Args:
        func: returns a tensor.
        argnums: which arguments the derivatives are of.

    Returns:
        A function. Of a ``func`` without dimensions and an argument (n, n) its result has the type
        of the argument, and shape (n, n, n, n).

    Raises:
        RuntimeError: as torch.func.hessian does.

    Example:
        >>> from packedtri import LowerTriangular
        >>> hessian(lambda L: (L @ L).sum())(LowerTriangular(torch.ones(3))).shape
        torch.Size([2, 2, 2, 2])

    Source:
        torch.func.hessian.
    """
    return jacfwd(jacrev(func, argnums), argnums)


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """torch.func.vjp of a function of packed types.

    Args:
        func: takes and returns tensors, packed types among them.
        primals: its arguments.
        has_aux: whether ``func`` returns a pair, of which the second is handed through.

    Returns:
        The results of ``func``, and a function that takes a cotangent for each, of their types or
        dense, and returns one for each argument, of its type; and what is handed through.

    Raises:
        RuntimeError: as torch.func.vjp does.

    Example:
        >>> from packedtri import LowerTriangular
        >>> product, pull = vjp(lambda L: L @ L, LowerTriangular(torch.ones(3)))
        >>> pull(product)[0]
        LowerTriangular([[4.,  .],
                         [4., 4.]])

    Source:
        torch.func.vjp.
    """
    found, pull, *aux = torch.func.vjp(_inner(func), *_taken_apart(primals), has_aux=has_aux)

    def pulled(*cotangents: Any, **kwargs: Any) -> Any:
        given: Sequence[Any] = [_cotangents(found, c) for c in cotangents]
        return _gradients(pull(*given, **kwargs))

    return (_built(found), pulled, *map(_built, aux))


def _cotangents(results: Any, given: Any) -> Any:
    """Cotangents of matrices as those of their elements."""

    def of_elements(result: Any, cotangent: Any) -> Any:
        if not isinstance(result, _Elements):
            return cotangent
        # The adjoint of reading the elements, some of which stand for two.
        return _Elements(_pack(as_dense(cotangent), result.cls.kind), result.cls)

    return pytree.tree_map(
        of_elements, results, given, is_leaf=lambda x: isinstance(x, (_Elements, PackedTensor))
    )


def jvp(
    func: Function,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """torch.func.jvp of a function of packed types.

    Args:
        func: takes and returns tensors, packed types among them.
        primals: its arguments, in a tuple.
        tangents: one for each, of its type.
        strict: as for torch.func.jvp.
        has_aux: whether ``func`` returns a pair, of which the second is handed through.

    Returns:
        The results of ``func``, their tangents, and what is handed through.

    Raises:
        RuntimeError: as torch.func.jvp does, also for a tangent of another type than its argument.

    Example:
        >>> from packedtri import LowerTriangular
        >>> L = LowerTriangular(torch.ones(3))
        >>> jvp(lambda L: L @ L, (L,), (L,))[1]
        LowerTriangular([[2.,  .],
                         [4., 2.]])

    Source:
        torch.func.jvp.
    """
    transformed = partial(torch.func.jvp, _inner(func), strict=strict, has_aux=has_aux)
    found: tuple[Any, ...] = transformed(
        *(tuple(_taken_apart(x) for x in given) for given in (primals, tangents))
    )
    return tuple(map(_built, found))
