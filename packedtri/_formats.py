"""Other orders of the elements of a triangle, each as positions for the packed ones.

LAPACK's packed and rectangular full packed (RFP) formats, and TensorFlow Probability's
``fill_triangular``. A format is a vector ``at`` of n(n+1)/2 positions: element k in our order is
element at[k] in the other. The conversions are gathers, so they are differentiable; they keep one
such vector of 64-bit integers while they run, except where the order is our own.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri._bands import real_diagonal
from packedtri._dtensor import beside

F = TypeVar("F", bound="Formats")


def _rows_and_columns(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and column, i >= j, of each element in packed order."""
    m, lengths = layout.numel(n), torch.arange(1, n + 1, device=device)
    i = torch.repeat_interleave(lengths - 1, lengths, output_size=m)
    j = torch.arange(m, device=device) - layout.numel(i)
    return i, j


def _lapack(n: int, device: torch.device) -> Tensor:
    """Column-major order of the lower triangle, which is row-major order of the upper one."""
    i, j = _rows_and_columns(n, device)
    return i + j * (2 * n - j - 1) // 2


def _rfp(n: int, device: torch.device, transr: bool, upper: bool) -> tuple[Tensor, Tensor]:
    """Positions in RFP order, and which elements lie in the triangle that is kept transposed.

    See Gustavson, Wasniewski, Dongarra and Langou, "Rectangular Full Packed Format for Cholesky's
    Algorithm", ACM TOMS 37 (2010), and the comments of LAPACK's dtpttf. The rectangle has n rows,
    n + 1 where n is even.
    """
    i, j = _rows_and_columns(n, device)
    even = 1 - n % 2
    if upper:
        half = n // 2
        moved = i < half
        r, c = torch.where(moved, i + half + 1, j), torch.where(moved, j, i - half)
    else:
        half = (n + 1) // 2
        moved = j >= half
        r = torch.where(moved, j - half, i + even)
        c = torch.where(moved, i - half + 1 - even, j)
    rows, columns = n + even, (n + 1) // 2
    return (r * columns + c if transr else r + c * rows), moved


def _fill_triangular(n: int, device: torch.device, upper: bool) -> Tensor:
    """The rows of a square of the vector's tail, and then of all of it reversed."""
    i, j = _rows_and_columns(n, device)
    m = layout.numel(n)
    if upper:
        # The square starts with the whole vector, and goes on with the reversed tail.
        flat = j * n + i
        return torch.where(flat < m, flat, m - 1 - (flat - m))
    flat = i * n + j
    return torch.where(flat < m - n, flat + n, m - 1 - (flat - (m - n)))


def _inverse(at: Tensor) -> Tensor:
    return torch.empty_like(at).scatter_(0, at, torch.arange(len(at), device=at.device))


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
        n = _order(cls, ap)
        if _is_own(cls, "from_lapack", uplo, row_major):
            return _build(cls, _as_lower(cls, ap, uplo))
        return _build(cls, _as_lower(cls, _selected(ap, _lapack(n, ap.device)), uplo))

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
        return packed if own else _selected(packed, _inverse(_lapack(self._n, packed.device)))

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
        n = _order(cls, arf)
        at, moved = _rfp_of(cls, "from_rfp", arf, n, uplo, transr)
        packed = _selected(arf, at)
        return _build(cls, _as_lower(cls, _conjugate(packed, moved, transr), uplo))

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
        at, moved = _rfp_of(type(self), "to_rfp", packed, self._n, uplo, transr)
        packed = _as_lower(type(self), packed, uplo)
        return _selected(_conjugate(packed, moved, transr), _inverse(at))

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
        at = _fill_triangular(_order(cls, x), x.device, cls.kind == layout.UPPER)
        return _build(cls, _selected(x, at))

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
        at = _fill_triangular(self._n, packed.device, self.kind == layout.UPPER)
        return _selected(packed, _inverse(at))


def _selected(x: Tensor, at: Tensor) -> Tensor:
    return x.index_select(-1, beside(x, at))


def _build(cls: Any, packed: Tensor) -> Any:
    return cls(packed)


def _order(cls: Any, x: Tensor) -> int:
    """The order that a vector has, checked as the constructor does."""
    return cls(x.detach() if isinstance(x, Tensor) else x)._n


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


def _rfp_of(
    cls: Any, name: str, x: Tensor, n: int, uplo: str, transr: str
) -> tuple[Tensor, Tensor]:
    upper = _check_uplo(cls, name, uplo) == "U"
    letters = "NC" if x.is_complex() else "NT"
    if not isinstance(transr, str) or transr.upper() not in tuple(letters):
        raise ValueError(f'[{name}] expected transr="N" or "{letters[1]}"; got "{transr}"')
    if x.is_complex() and cls.kind == layout.SYMMETRIC:
        raise NotImplementedError(
            f"[{name}] RFP holds Hermitian and triangular matrices; a complex Symmetric equals its "
            "transpose. Use to_lapack and from_lapack"
        )
    return _rfp(n, x.device, transr.upper() != "N", upper)


def _as_lower(cls: Any, packed: Tensor, uplo: str) -> Tensor:
    """Elements of the transpose of an upper triangle as those of the lower one, or the other way.

    They are the same, but conjugated where the matrix is Hermitian.
    """
    return packed.conj() if cls.kind == layout.HERMITIAN and uplo.upper() == "U" else packed


def _conjugate(packed: Tensor, moved: Tensor, transr: str) -> Tensor:
    """Conjugate what a complex rectangle keeps conjugated: one part, or with transr the other."""
    if not packed.is_complex():
        return packed
    flipped = moved if transr.upper() == "N" else ~moved
    return torch.where(beside(packed, flipped), packed.conj(), packed)
