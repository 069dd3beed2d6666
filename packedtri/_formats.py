"""Conversions of packed types to vectors in other orders, and back: see ``_orders``."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from torch import Tensor

from packedtri import _nodes, layout
from packedtri._bands import real_diagonal
from packedtri._orders import from_order, to_order

F = TypeVar("F", bound="Formats")


class Formats:
    """Conversions between a packed type and vectors in other orders."""

    kind: ClassVar[int]
    _n: int

    @classmethod
    def from_lapack(cls: type[F], ap: Tensor, uplo: str, row_major: bool = False) -> F:
        """The matrix that a packed LAPACK or BLAS vector holds, differentiably.

        Args:
            ap: shape (*batch, n(n+1)/2).
            uplo: "L" or "U", the triangle that it holds. LowerTriangular takes "L" only and
                UpperTriangular "U" only.
            row_major: its elements follow each other along rows, as LAPACK_ROW_MAJOR of LAPACKE;
                otherwise along columns.

        Returns:
            shape (*batch, n, n). It shares the memory of ``ap`` for "U", and for "L" in row-major
            order; otherwise the elements are copied. Of a complex Hermitian and "U" the stored
            elements are a lazy conjugate of ``ap``, without a copy.

        Raises:
            TypeError: when ``ap`` is not a tensor, is itself a packed type, or has a dtype
                without kernels.
            ValueError: when ``ap`` has no triangular number of elements, or ``uplo`` is neither
                letter or contradicts the type.

        Example:
            >>> from packedtri import LowerTriangular
            >>> LowerTriangular.from_lapack(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), "L")
            LowerTriangular([[1.,  .,  .],
                             [2., 4.,  .],
                             [3., 5., 6.]])
        """
        _check_vector(cls, ap)
        own = _is_own(cls, "from_lapack", uplo, row_major)
        return _build(cls, _as_lower(cls, ap if own else from_order(ap, "lapack"), uplo))

    def to_lapack(self, uplo: str, row_major: bool = False) -> Tensor:
        """The elements as a packed vector for LAPACK or BLAS, differentiably.

        Args:
            uplo: as for ``from_lapack``.
            row_major: as for ``from_lapack``.

        Returns:
            shape (*batch, n(n+1)/2). It shares memory where ``from_lapack`` would, unless elements
            must be conjugated, and then holds what is stored. A copy has zeros for the imaginary
            parts on the diagonal of a Hermitian.

        Raises:
            ValueError: when ``uplo`` is neither letter or contradicts the type.

        Example:
            >>> from packedtri import Symmetric
            >>> Symmetric(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).to_lapack("L")
            tensor([1., 2., 4., 3., 5., 6.])
        """
        packed: Any = _nodes.exposed(self)  # type: ignore[arg-type]
        packed = _as_lower(type(self), packed, uplo)
        own = _is_own(type(self), "to_lapack", uplo, row_major)
        if own and not packed.is_conj():
            return packed
        # Other libraries know no lazy conjugates.
        packed = real_diagonal(packed, self.kind, self._n).resolve_conj()
        return packed if own else to_order(packed, "lapack")

    @classmethod
    def from_rfp(cls: type[F], arf: Tensor, uplo: str, transr: str = "N") -> F:
        """The matrix that a vector in LAPACK's rectangular full packed format holds.

        Args:
            arf: shape (*batch, n(n+1)/2).
            uplo: "L" or "U", the triangle that it holds, as for ``from_lapack``.
            transr: "N", or "T" ("C" where complex) for the transposed rectangle.

        Returns:
            shape (*batch, n, n), a copy.

        Raises:
            TypeError: when ``arf`` is not a tensor, is itself a packed type, or has a dtype
                without kernels.
            ValueError: when ``arf`` has no triangular number of elements, or a letter is unknown or
                contradicts the type.
            NotImplementedError: for complex Symmetric, which RFP does not know.

        Example:
            >>> from packedtri import UpperTriangular
            >>> UpperTriangular.from_rfp(torch.tensor([2.0, 3.0, 1.0]), "U")
            UpperTriangular([[1., 2.],
                             [ ., 3.]])
        """
        _check_vector(cls, arf)
        packed = from_order(arf, _rfp_of(cls, "from_rfp", arf, uplo, transr))
        return _build(cls, _as_lower(cls, packed, uplo))

    def to_rfp(self, uplo: str, transr: str = "N") -> Tensor:
        """The elements in LAPACK's rectangular full packed format, differentiably.

        Args:
            uplo: as for ``from_rfp``.
            transr: as for ``from_rfp``.

        Returns:
            shape (*batch, n(n+1)/2), a copy.

        Raises:
            ValueError: when a letter is unknown or contradicts the type.
            NotImplementedError: for complex Symmetric, which RFP does not know.

        Example:
            >>> from packedtri import UpperTriangular
            >>> UpperTriangular(torch.tensor([1.0, 2.0, 3.0])).to_rfp("U")
            tensor([2., 3., 1.])
        """
        packed = _nodes.to_elements(self)  # type: ignore[arg-type]
        order = _rfp_of(type(self), "to_rfp", packed, uplo, transr)
        return to_order(_as_lower(type(self), packed, uplo), order)

    @classmethod
    def from_fill_triangular(cls: type[F], x: Tensor) -> F:
        """The matrix that TensorFlow Probability's ``fill_triangular`` makes of a vector.

        UpperTriangular reads it as with ``upper=True``, the other types as without.

        Args:
            x: shape (*batch, n(n+1)/2).

        Returns:
            shape (*batch, n, n), a copy.

        Raises:
            TypeError: when ``x`` is not a tensor, is itself a packed type, or has a dtype
                without kernels.
            ValueError: when ``x`` has no triangular number of elements.

        Example:
            >>> from packedtri import LowerTriangular
            >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
            >>> LowerTriangular.from_fill_triangular(x)
            LowerTriangular([[4.,  .,  .],
                             [6., 5.,  .],
                             [3., 2., 1.]])
        """
        _check_vector(cls, x)
        return _build(cls, from_order(x, _fill_triangular_of(cls)))

    def to_fill_triangular(self) -> Tensor:
        """The vector that TensorFlow Probability's ``fill_triangular`` makes this matrix of.

        Returns:
            shape (*batch, n(n+1)/2), a copy.

        Example:
            >>> from packedtri import LowerTriangular
            >>> LowerTriangular(torch.tensor([1.0, 2.0, 3.0])).to_fill_triangular()
            tensor([3., 2., 1.])
        """
        packed = _nodes.to_elements(self)  # type: ignore[arg-type]
        return to_order(packed, _fill_triangular_of(type(self)))


def _build(cls: Any, packed: Tensor) -> Any:
    return cls(packed)


def _check_vector(cls: Any, x: Tensor) -> None:
    """Raise where the constructor does not take a vector."""
    cls(x.detach() if isinstance(x, Tensor) else x)


def _check_uplo(cls: Any, name: str, uplo: str) -> str:
    uplo = uplo.upper() if isinstance(uplo, str) else uplo
    fitting = {layout.LOWER: "L", layout.UPPER: "U"}.get(cls.kind, "LU")
    if uplo not in tuple(fitting):
        expected = " or ".join(f'"{letter}"' for letter in fitting)
        raise ValueError(f'[{name}] {cls.__name__} expects uplo={expected}; got "{uplo}"')
    return uplo


def _is_own(cls: Any, name: str, uplo: str, row_major: bool) -> bool:
    """Whether the order is the one that the type stores."""
    return (_check_uplo(cls, name, uplo) == "L") == row_major


def _fill_triangular_of(cls: Any) -> str:
    return f"fill_triangular_{'U' if cls.kind == layout.UPPER else 'L'}"


def _rfp_of(cls: Any, name: str, x: Tensor, uplo: str, transr: str) -> str:
    """The name of the order, after checking that the type has it."""
    uplo = _check_uplo(cls, name, uplo)
    letters = "NC" if x.is_complex() else "NT"
    if not isinstance(transr, str) or transr.upper() not in tuple(letters):
        raise ValueError(f'[{name}] expected transr="N" or "{letters[1]}"; got "{transr}"')
    if x.is_complex() and cls.kind == layout.SYMMETRIC:
        raise NotImplementedError(
            f"[{name}] RFP holds Hermitian and triangular matrices; a complex Symmetric equals its "
            "transpose. Use to_lapack and from_lapack"
        )
    return f"rfp_{uplo}{'N' if transr.upper() == 'N' else 'T'}"


def _as_lower(cls: Any, packed: Tensor, uplo: str) -> Tensor:
    """Elements of the transpose of an upper triangle as those of the lower one, or the other way.

    They are the same, but conjugated where the matrix is Hermitian.
    """
    return packed.conj() if cls.kind == layout.HERMITIAN and uplo.upper() == "U" else packed
