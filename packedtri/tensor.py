"""The packed types: torch tensors that store one triangle of a square matrix.

All four keep the same n(n+1)/2 elements in row-major packed lower order and differ in how they
read them: LowerTriangular as the lower triangle, UpperTriangular as its transpose, Symmetric with
the triangle mirrored, Hermitian with the conjugate mirrored. To its user a packed type is a
``torch.Tensor`` of shape (*batch, n, n).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from packedtri import _aten_table, _dtensor, _nodes, _tracing, _values, dispatch, layout
from packedtri._autograd import quick
from packedtri._diagonal_sums import DiagonalSums
from packedtri._factories import Factories
from packedtri._formats import Formats
from packedtri._in_place import InPlaceProducts
from packedtri._sharing import Family, Member, share
from packedtri._typed import attempt
from packedtri.layout import DTYPES as DTYPES

P = TypeVar("P", bound="PackedTensor")

# What ties a type to other tensors, which stays behind when it is stored or copied.
_TIES = ("_source", "_family", "_member", "_conjugate_of", "_viewed")
_unpack_op = torch.ops.packedtri.unpack.default
_unpack = quick(_unpack_op)
_make_wrapper = Tensor._make_wrapper_subclass
_is_inference_mode = torch.is_inference_mode_enabled
_watches_functions = torch._C._is_torch_function_mode_enabled
# Plain tensors, and what stands for them while torch traces.
_PLAIN = (torch.nn.Parameter, FakeTensor, FunctionalTensor)
# What multiplies two types, where nobody else is to see it.
_products: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


class PackedTensor(DiagonalSums, Factories, Formats, InPlaceProducts, Tensor):
    """Base of the packed types. Not to be instantiated itself.

    Args:
        packed: shape (*batch, n(n+1)/2), of a floating or complex dtype. Element (i, j), i >= j,
            of the triangle lies at i(i+1)/2 + j. The type wraps it without a copy, and gradients
            flow back to it. A dense matrix goes to ``from_dense``: its rows would be taken for a
            batch of triangles where their length allows. A DTensor spreads the matrices over
            processes.

    Raises:
        TypeError: when ``packed`` is neither a plain tensor nor a DTensor, or has a dtype without
            kernels.
        ValueError: when the last dimension of ``packed`` is no triangular number.

    Example:
        >>> import torch
        >>> from packedtri import LowerTriangular
        >>> LowerTriangular(torch.tensor([1.0, 2.0, 3.0])).to_dense()
        tensor([[1., 0.],
                [2., 3.]])
    """

    kind: ClassVar[int]
    #: The type of the transpose.
    transposed: ClassVar[type[PackedTensor]]
    _packed: Tensor
    _n: int
    # The packed tensor that the type was made from and its grad_fn then, where it may change.
    _source: tuple[Callable[[], Tensor | None], Any]
    # The tensors with the same elements that no graph connects to it.
    _family: Family
    # What stands for it among them.
    _member: Member
    # The tensor that the elements are the lazy conjugate of, where one type is a view of another.
    _conjugate_of: Tensor
    # What it is a view of; torch tells the root alone.
    _viewed: PackedTensor

    def __new__(cls: type[P], packed: Tensor) -> P:
        if cls is PackedTensor:
            raise TypeError("PackedTensor is the base class; use one of the types derived from it")
        n = _check_packed(cls, packed)
        t = _nodes.from_packed(cls, _nodes.alias(packed), n, shared=True)
        if not _tracing.is_compiling():
            share(t, packed)
        return t

    @classmethod
    def _wrap(cls: type[P], packed: Tensor, n: int) -> P:
        """The type over ``packed``, unchecked and outside autograd."""
        if packed._is_zerotensor():
            # Torch makes such zeros, without storage, for gradients. Nothing could write to them,
            # and what runs below their dispatch key would read their storage.
            packed = packed.clone()
        if type(packed) is not Tensor:
            _dtensor.meet(packed)
            packed = _without_own_rules(packed)
        shape = (n, n) if packed.dim() == 1 else (*packed.shape[:-1], n, n)
        if packed.is_inference() is _is_inference_mode():
            t = _make_wrapper(cls, shape, dtype=packed.dtype, device=packed.device)
        else:
            # Views are inference tensors where their bases are, in the mode and outside of it.
            with torch.inference_mode(packed.is_inference()):
                t = _make_wrapper(cls, shape, dtype=packed.dtype, device=packed.device)
        t._packed = packed
        t._n = n
        return t

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            dispatch.add_type(cls)

    @classmethod
    def from_dense(cls: type[P], x: Tensor, check: bool = False) -> P:
        """Pack one triangle of dense matrices, differentiably.

        Args:
            x: shape (*batch, n, n). UpperTriangular takes the upper triangle, the other types the
                lower one.
            check: also look at the other half. It must be zero for triangular types. For Symmetric
                it must mirror the lower half up to n * eps * max|x|, rounding that sums of n terms
                may leave; for Hermitian it must mirror the conjugate.

        Returns:
            shape (*batch, n, n).

        Raises:
            TypeError: when ``x`` is no dense tensor of a floating or complex dtype.
            ValueError: when its matrices are not square, or the other half contradicts the type.

        Example:
            >>> from packedtri import Symmetric
            >>> Symmetric.from_dense(torch.tensor([[1.0, 2.0], [2.0, 3.0]])).packed
            tensor([1., 2., 3.])
        """
        from packedtri.ops import convert

        if cls is PackedTensor:
            raise TypeError("PackedTensor is the base class; use one of the types derived from it")
        return convert.from_dense(cls, x, check)

    @property
    def packed(self) -> Tensor:
        """The stored elements, shape (*batch, n(n+1)/2), a differentiable view of the storage.

        Where autograd records, it refuses to change it in place, because the type would not learn
        of that; under torch.no_grad(), and where nothing requires a gradient, it may be written.
        """
        return _nodes.exposed(self)

    def _to_packed(self) -> Tensor:
        return _nodes.to_packed(self)

    @property
    def n(self) -> int:
        """Order of the matrices."""
        # Under torch.compile the shape may be symbolic where the attribute would be a constant.
        return self.shape[-1] if _tracing.is_compiling() else self._n

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:  # type: ignore[override]
        """The matrices as a dense tensor, differentiably.

        Args:
            dtype: convert the elements to it.

        Returns:
            shape (*batch, n, n), a plain tensor.

        Raises:
            TypeError: when ``dtype`` is not floating or complex.

        Example:
            >>> from packedtri import UpperTriangular
            >>> UpperTriangular(torch.tensor([1.0, 2.0, 3.0])).to_dense()
            tensor([[1., 2.],
                    [0., 3.]])
        """
        if dtype is not None and dtype not in DTYPES:
            raise TypeError(
                f"[to_dense] expected one of {dtype_names()}; got {dtype}. Convert the result"
            )
        inner = self._packed
        if dtype is None or dtype is inner.dtype:
            n = self._n
            found: Tensor | None = attempt(_unpack_op, None, n, (self,), (inner,), n, self.kind)
            if found is not None:
                return found
        packed = _nodes.to_packed(self)
        return _unpack(packed if dtype is None else packed.to(dtype), self.n, self.kind)

    def set_diagonal_(self: P, values: Tensor) -> P:
        """Write the main diagonal of each matrix in place, differentiably.

        Args:
            values: of a shape that broadcasts to (*batch, n).

        Returns:
            The matrices themselves.

        Raises:
            TypeError: when ``values`` is no tensor.
            ValueError: when the shapes do not broadcast, or ``values`` are complex where the
                matrices are real, or have imaginary parts where they are Hermitian.

        Example:
            >>> LowerTriangular.zeros(2).set_diagonal_(torch.tensor([1.0, 2.0]))
            LowerTriangular([[1.,  .],
                             [0., 2.]])
        """
        from packedtri.ops import elements, lost_writes

        lost_writes.forget(values)
        diagonal = _diagonal_values(self, values)
        elements.check_not_complex("set_diagonal_", self, diagonal)
        return elements.set_diagonal_(self, diagonal)

    def unit_diagonal(self: P) -> P:
        """The matrices with ones on the main diagonal, differentiably; the rest is copied.

        Returns:
            shape (*batch, n, n).

        Example:
            >>> LowerTriangular(torch.tensor([4.0, 5.0, 6.0])).unit_diagonal()
            LowerTriangular([[1.,  .],
                             [5., 1.]])
        """
        from packedtri.ops import elements

        return elements.with_diagonal(self, self._packed.new_ones(()))

    if TYPE_CHECKING:
        # What these give follows from both operands: a type, or a dense tensor.
        mT: Any
        mH: Any
        T: Any
        H: Any

        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...

    # The slots skip __torch_function__, which costs about as much as a small product.
    def __matmul__(self, other: Any) -> Any:
        product = _products.get((type(self), type(other)))
        if product is None or _watches_functions():
            product = _product(self, other, Tensor.__matmul__, other)
        return product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        product = _products.get((type(other), type(self)))
        if product is None or _watches_functions():
            product = _product(other, self, _reversed_matmul, other)
        return product(other, self)

    # Torch calls add_ and sub_ for both, which change the stored elements for its optimizers.
    def __iadd__(self, other: Any) -> Any:
        _check_shift("+=", self, other)
        return self.add_(other)

    def __isub__(self, other: Any) -> Any:
        _check_shift("-=", self, other)
        return self.sub_(other)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        # Dynamo demands a plain list of real tensors; its own types are over fake ones.
        if type(self._packed) is FakeTensor:
            return _TracedNames(("_packed",)), None
        return ["_packed"], None

    @classmethod
    def __tensor_unflatten__(
        cls: type[P], inner: Mapping[str, Tensor], _: None, outer_size: Any, outer_stride: Any
    ) -> P:
        return cls._wrap(inner["_packed"], outer_size[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _TIES}

    def _stable_hash_for_caching(self) -> str:
        # The packed shape belongs to it: without, torch.compile finds graphs of other shapes.
        inner = self._packed
        fields = (inner.dtype, inner.device, self.requires_grad, tuple(inner.shape))
        return f"{type(self).__qualname__}{fields}"

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return dispatch.call(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _aten_table.call_aten(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        from packedtri.ops import printing

        return printing.text(self)


class LowerTriangular(PackedTensor):
    """Lower triangular matrices, shape (*batch, n, n), zero above the diagonal.

    Args:
        packed: shape (*batch, n(n+1)/2), the rows of the triangle one after another.

    Raises:
        TypeError: when ``packed`` is neither a plain tensor nor a DTensor, or has a dtype without
            kernels.
        ValueError: when the last dimension of ``packed`` is no triangular number.

    Example:
        >>> L = LowerTriangular(torch.tensor([1.0, 2.0, 3.0]))
        >>> L @ L
        LowerTriangular([[1.,  .],
                         [8., 9.]])
    """

    kind = layout.LOWER


class UpperTriangular(PackedTensor):
    """Upper triangular matrices, shape (*batch, n, n), zero below the diagonal.

    Args:
        packed: shape (*batch, n(n+1)/2), the rows of the transpose one after another, which are
            the columns of the matrix.

    Raises:
        TypeError: when ``packed`` is neither a plain tensor nor a DTensor, or has a dtype without
            kernels.
        ValueError: when the last dimension of ``packed`` is no triangular number.

    Example:
        >>> UpperTriangular(torch.tensor([1.0, 2.0, 3.0]))
        UpperTriangular([[1., 2.],
                         [ ., 3.]])
    """

    kind = layout.UPPER


class Symmetric(PackedTensor):
    """Symmetric matrices, shape (*batch, n, n).

    Complex ones equal their transpose, not its conjugate.

    Args:
        packed: shape (*batch, n(n+1)/2), the rows of the lower triangle one after another.

    Raises:
        TypeError: when ``packed`` is neither a plain tensor nor a DTensor, or has a dtype without
            kernels.
        ValueError: when the last dimension of ``packed`` is no triangular number.

    Example:
        >>> Symmetric(torch.tensor([1.0, 2.0, 3.0]))
        Symmetric([[1., 2.],
                   [2., 3.]])
    """

    kind = layout.SYMMETRIC


class Hermitian(PackedTensor):
    """Hermitian matrices, shape (*batch, n, n), which equal their conjugate transpose.

    Imaginary parts that are stored on the diagonal are taken for zero wherever elements are read,
    as LAPACK does; what is computed has zeros there. A real Hermitian matrix is a symmetric one:
    with a real dtype the type computes as ``Symmetric`` does and keeps its own name.

    Args:
        packed: shape (*batch, n(n+1)/2), the rows of the lower triangle one after another.

    Raises:
        TypeError: when ``packed`` is neither a plain tensor nor a DTensor, or has a dtype without
            kernels.
        ValueError: when the last dimension of ``packed`` is no triangular number.

    Example:
        >>> H = Hermitian(torch.tensor([2.0, 1.0 + 1.0j, 3.0]))
        >>> H
        Hermitian([[2.+0.j, 1.-1.j],
                   [1.+1.j, 3.+0.j]])
        >>> H @ torch.tensor([1.0, 1.0j])
        tensor([3.+1.j, 1.+4.j])

    Source:
        The ``hp`` storage of BLAS and LAPACK: what is stored is their row-major lower triangle,
        and the conjugate of their column-major upper one (see ``to_lapack``).
    """

    kind = layout.HERMITIAN


class _TracedNames(list[str]):
    """The names of the tensors inside a type that Dynamo has made.

    It asks whether an attribute is among them. If so, its graph reads the attribute of the type;
    otherwise it takes the value for a constant, which it cannot do with a tensor. ``.packed`` is to
    be read, but is not one of the tensors that the type consists of.
    """

    def __contains__(self, name: object) -> bool:
        return name == "packed" or super().__contains__(name)


for _base in (PackedTensor, DiagonalSums, Factories, Formats, InPlaceProducts):
    dispatch.hide_members_from_dynamo(_base)

LowerTriangular.transposed = UpperTriangular
UpperTriangular.transposed = LowerTriangular
Symmetric.transposed = Symmetric
Hermitian.transposed = Hermitian


def _product(left: Any, right: Any, overridable: Callable[[Any, Any], Any], other: Any) -> Any:
    """What multiplies two values for an operator of one of them.

    Args:
        left: the left operand.
        right: the right one.
        overridable: torch's operator, which a mode or the rules of other types may override.
        other: the operand whose operator it is not.
    """
    row = dispatch.find(
        Tensor.matmul, (_values.canonical_type(left), _values.canonical_type(right))
    )
    if row is not None and not any(map(_has_own_rules, (type(left), type(right)))):
        _products[type(left), type(right)] = row.handler
        return overridable if _watches_functions() else row.handler
    return overridable if hasattr(other, "__torch_function__") else _not_implemented


def _has_own_rules(cls: type) -> bool:
    """Whether a type overrides torch functions by other rules than torch's and those here."""
    disabled = torch._C._disabled_torch_function_impl
    known = (disabled, *map(_torch_function, (PackedTensor, Tensor)))
    return _torch_function(cls) not in known


def _torch_function(cls: Any) -> Any:
    rules = cls.__torch_function__
    return getattr(rules, "__func__", rules)


def _reversed_matmul(left: Any, right: Any) -> Any:
    return Tensor.__rmatmul__(right, left)


def _not_implemented(left: Any, right: Any) -> Any:
    return NotImplemented


def rebuild(cls: type[P], packed: Tensor, n: int, requires_grad: bool) -> P:
    """A type from what was stored of it, where stored elements have been put by now."""
    t = cls._wrap(packed, n)
    t.requires_grad_(requires_grad)
    return t


def _check_packed(cls: type, packed: Any) -> int:
    """Order of the triangle that ``packed`` holds, after checking that it can hold one."""
    if not isinstance(packed, Tensor) or isinstance(packed, PackedTensor):
        raise TypeError(
            f"[{cls.__name__}] expected a packed tensor (*batch, n(n+1)/2); "
            f"got {_values.describe(packed)}"
        )
    known = type(packed) is Tensor or issubclass(type(packed), _PLAIN)
    if not (known or _dtensor.is_spread(packed)):
        raise TypeError(
            f"[{cls.__name__}] expected a plain tensor; got {type(packed).__name__} "
            f"{tuple(packed.shape)}. Convert with .as_subclass(torch.Tensor), or take the tensor "
            "that a wrapper holds"
        )
    check_dtype(cls.__name__, packed)
    if packed.dim() == 0:
        raise ValueError(
            f"[{cls.__name__}] expected a packed tensor (*batch, n(n+1)/2); got a scalar"
        )
    try:
        return layout.order(packed.shape[-1])
    except ValueError as error:
        raise ValueError(
            f"[{cls.__name__}] {error}; got a tensor {tuple(packed.shape)}. "
            f"For dense matrices use {cls.__name__}.from_dense"
        ) from None


def _without_own_rules(packed: Tensor) -> Tensor:
    """A tensor without what a type of a user's adds to it by __torch_function__.

    Those that see ops, and may have no memory, stay what they are.
    """
    if type(packed).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return packed
    with torch._C.DisableTorchFunctionSubclass():
        return packed.as_subclass(Tensor)


def _diagonal_values(t: PackedTensor, values: Tensor) -> Tensor:
    expected = tuple(t.shape[:-1])
    if not isinstance(values, Tensor):
        raise TypeError(
            f"[set_diagonal_] expected a tensor that broadcasts to {expected}; got "
            f"{type(values).__name__}. For a number use fill_diagonal_"
        )
    try:
        return values.expand(expected)
    except RuntimeError:
        raise ValueError(
            f"[set_diagonal_] expected values that broadcast to {expected}; "
            f"got {_values.describe(values)}"
        ) from None


def _check_shift(operator: str, t: PackedTensor, other: Any) -> None:
    """Raise where a number would change the zeros of a triangular matrix."""
    if t.kind in layout.MIRRORED or isinstance(other, PackedTensor):
        return
    number = other.dim() == 0 if isinstance(other, Tensor) else other != 0
    if number:
        sign = operator[0]
        raise NotImplementedError(
            f"[{operator}] a number changes the zeros of {_values.describe(t)}, which are not "
            f"stored. L {sign} number gives the dense result; L.{'add_' if sign == '+' else 'sub_'}"
            "(number) changes the stored elements only"
        )


def dtype_names() -> str:
    """The element types that have kernels, for messages."""
    return ", ".join(str(d).removeprefix("torch.") for d in DTYPES)


def check_dtype(name: str, x: Tensor) -> None:
    """Raise where no kernel handles the elements of ``x``."""
    if x.dtype not in DTYPES:
        raise TypeError(f"[{name}] expected one of {dtype_names()}; got {x.dtype}")
    check_strided(name, x)


def check_strided(name: str, x: Tensor, or_else: str = "") -> None:
    """Raise for sparse tensors and others that no kernel reads.

    Args:
        or_else: another way out than to convert ``x``, for the end of the message.
    """
    if x.layout is not torch.strided:
        raise TypeError(
            f"[{name}] expected a strided tensor; got {_values.describe(x)} of layout {x.layout}. "
            f"Convert it with .to_dense() first{or_else}"
        )
