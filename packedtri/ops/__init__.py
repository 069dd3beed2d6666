"""The operations, a module a family. Importing them adds their rows to the dispatch table."""

from packedtri.ops import (
    aten,
    attributes,
    batch,
    convert,
    copies,
    dense,
    gradients,
    interop,
    lists,
    matmul,
    mm,
    overrides,
    pointwise,
    reduce,
    views,
)

__all__ = [
    "aten",
    "attributes",
    "batch",
    "convert",
    "copies",
    "dense",
    "gradients",
    "interop",
    "lists",
    "matmul",
    "mm",
    "overrides",
    "pointwise",
    "reduce",
    "views",
]
