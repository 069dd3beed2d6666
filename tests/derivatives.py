"""Derivatives against differences, with float64 or complex128 inputs.

First derivatives are compared element by element. Second ones have many more elements, so torch
compares them along random directions: its fast mode, which its own tests run in. Where these differ
it tells the elements. PACKEDTRI_TEST_SLOW_GRADCHECK=1 has all of them compared element by element.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.autograd import gradcheck
from torch.autograd import gradgradcheck as by_elements

SLOW = os.environ.get("PACKEDTRI_TEST_SLOW_GRADCHECK", "0") not in ("", "0")

gradgradcheck = partial(by_elements, fast_mode=not SLOW)


def check_derivatives(f: Callable[..., Any], inputs: Tensor | Sequence[Tensor]) -> None:
    """First derivatives in both modes and second ones, of one vector and of several by vmap."""
    assert gradcheck(f, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, inputs, check_batched_grad=True)
