"""Draws the picture of the storage format: `python docs/draw_storage.py` writes the SVG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

PICTURE = Path(__file__).parent / "_static" / "storage.svg"

ORDER = 4
CELL = 34
GAP = 46
TOP = 34
ROW_COLOURS = ("#9ecae1", "#a1d99b", "#fdd0a2", "#dadaeb")

Element = tuple[int, int] | None


def lower(i: int, j: int) -> Element:
    """The stored element that a lower triangular matrix reads at (i, j)."""
    return (i, j) if i >= j else None


def upper(i: int, j: int) -> Element:
    """... that its transpose reads."""
    return (j, i) if i <= j else None


def symmetric(i: int, j: int) -> Element:
    """... that a symmetric matrix reads."""
    return (max(i, j), min(i, j))


def hermitian(i: int, j: int) -> Element:
    """... that a Hermitian matrix reads, conjugated above the diagonal."""
    return symmetric(i, j)


def text(x: float, y: float, content: str, size: int = 13, anchor: str = "middle") -> str:
    """A line of text."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="#222">{content}</text>'
    )


def cell(x: float, y: float, element: Element, conjugated: bool = False) -> str:
    """A matrix element with its place in memory, coloured by stored row; a zero is left blank.

    A bar is the sign of the conjugate.
    """
    if element is None:
        fill, label = "#f2f2f2", ""
    else:
        i, j = element
        fill, label = ROW_COLOURS[i], str(i * (i + 1) // 2 + j)
    if conjugated:
        label = f'<tspan text-decoration="overline">{label}</tspan>'
    box = f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="#555"/>'
    return box + text(x + CELL / 2, y + CELL / 2 + 5, label)


def matrix(x: float, title: str, read: Callable[[int, int], Element]) -> list[str]:
    """A matrix whose elements show the place in memory that they are read from."""
    cells = [
        cell(x + j * CELL, TOP + i * CELL, read(i, j), read is hermitian and j > i)
        for i in range(ORDER)
        for j in range(ORDER)
    ]
    return [text(x + ORDER * CELL / 2, TOP - 12, title, 14), *cells]


def memory(x: float, y: float) -> list[str]:
    """The stored elements in their order."""
    parts = [
        text(x, y - 10, "in memory: the rows of the lower triangle, one after another", 14, "start")
    ]
    stored = [(i, j) for i in range(ORDER) for j in range(i + 1)]
    for place, element in enumerate(stored):
        parts.append(cell(x + place * CELL, y, element))
        i, j = element
        parts.append(text(x + (place + 0.5) * CELL, y + CELL + 16, f"({i},{j})", 11))
    return parts


def draw() -> str:
    """The whole picture."""
    width = 4 * ORDER * CELL + 5 * GAP
    height = TOP + ORDER * CELL + 110
    parts = [
        *matrix(GAP, "LowerTriangular", lower),
        *matrix(2 * GAP + ORDER * CELL, "UpperTriangular", upper),
        *matrix(3 * GAP + 2 * ORDER * CELL, "Symmetric", symmetric),
        *matrix(4 * GAP + 3 * ORDER * CELL, "Hermitian", hermitian),
        *memory(GAP, TOP + ORDER * CELL + 46),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif">'
    )
    background = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
