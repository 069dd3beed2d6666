"""How sizes are written on the command line: one by one, or as a range with a factor."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Sizes have up to nine digits: far more than memory holds.
LARGEST = 999_999_999

_NUMBER = re.compile(r"\d{1,9}")
_RANGE = re.compile(r"(\d{1,9}):(\d{1,9}):x(\d{1,9}(?:\.\d{1,9})?)")
# Ranges with a smaller factor have more sizes than anybody measures.
_LEAST_FACTOR = 1.001


class BadSize(ValueError):
    """A text that names no sizes."""


def sizes(texts: Iterable[str], ragged: bool = False) -> list[int]:
    """The sizes that the texts name, each once and in order.

    ``FIRST:LAST:xFACTOR`` stands for FIRST, FIRST·FACTOR, FIRST·FACTOR² and so on, rounded, up to
    LAST. With ``ragged`` the next larger size follows each.
    """
    found = {size for text in texts for size in _named(text)}
    return sorted(found | {size + 1 for size in found} if ragged else found)


def _named(text: str) -> list[int]:
    if _NUMBER.fullmatch(text) and int(text) > 0:
        return [int(text)]
    match = _RANGE.fullmatch(text)
    first, last, factor = (float(part) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    if first < 1 or last < first or factor < _LEAST_FACTOR:
        raise BadSize(
            f"{text!r} is no size: use a positive integer such as 1024, or FIRST:LAST:xFACTOR such "
            f"as 32:8192:x1.4, with a factor of {_LEAST_FACTOR} or more; sizes have up to 9 digits"
        )
    found = []
    size = first
    while round(size) <= last:
        found.append(round(size))
        size *= factor
    return found
