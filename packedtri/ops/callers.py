"""Functions of torch's own in Python that cannot be overridden, found on the stack.

What they do to a type they do by other functions. Those the type sees, and they mean something else
when anybody else calls them.
"""

from __future__ import annotations

import inspect
from types import FrameType

import torch


def caller(module: str, *names: str) -> FrameType | None:
    """The innermost frame under way of one of these functions.

    Args:
        module: where they are defined.
        names: of the functions, which must call no code of a user's.

    Returns:
        The frame, or None: also under torch.compile, which follows no frames.
    """
    frame = None if torch.compiler.is_compiling() else inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name in names and frame.f_globals.get("__name__") == module:
            return frame
        frame = frame.f_back
    return None
