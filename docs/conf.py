"""Sphinx configuration. The libraries must have been built: the API pages import the package."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "docs" / "_ext")]

from packedtri import __version__  # noqa: E402

project = "packedtri"
author = "the packedtri contributors"
copyright = "2026, the packedtri contributors"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "operations",
    "performance",
    "plain_docstrings",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# Signatures say "the type of the matrix itself" by type variables.
autodoc_type_aliases = dict.fromkeys("FPST", "packedtri.PackedTensor")
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# torch and Python have documentation of their own, which a build without a network cannot look up.
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|collections|typing|pathlib|numpy)(\..*)?"),
    (r"py:class", r"(packedtri\.[\w.]+\.)?(Tensor|device|dtype|Index|M|_Array)"),
    (r"py:.*", r"(ValueError|TypeError|NotImplementedError|RuntimeError|IndexError)"),
]

html_theme = "furo"
html_static_path = ["_static"]
html_title = f"packedtri {release}"
