"""Sphinx extension: docstrings are prose for people, not reStructuredText.

In them (*batch, n, n) is a shape and |A| an absolute value, where reStructuredText sees markup.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# An asterisk before a name and a vertical bar; not a doubled asterisk, which is markup or a power.
_MARKUP = re.compile(r"(?<![*`])\*(?=\w)|\|")
_LITERAL = re.compile(r"(``.*?``|`.*?`)")


def escape(line: str) -> str:
    """The line with what is no markup escaped; examples and literals stay as they are."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = _LITERAL.split(line)
    parts[::2] = [_MARKUP.sub(lambda found: "\\" + found[0], part) for part in parts[::2]]
    return "".join(parts)


def _process(
    app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    lines[:] = [escape(line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen before napoleon rewrites the sections."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
