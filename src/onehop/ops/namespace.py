"""The torch.library namespace ``onehop``, which holds all of its operators."""

from collections.abc import Callable
from typing import Any

import torch

LIBRARY = torch.library.Library("onehop", "DEF")


def define(name: str, kernel: Callable[..., Any], fake: Callable[..., Any], schema: str = "") -> None:
    """Register an operator that is defined by its kernel and not by a call.

    Args:
        name: The operator's name.
        kernel: The function that runs, on any device.
        fake: Returns results of the same shapes and dtypes without data.
        schema: The operands and results; empty means that they follow from the kernel's annotations.
    """
    LIBRARY.define(name + (schema or torch.library.infer_schema(kernel, mutates_args=())))
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"onehop::{name}", fake, lib=LIBRARY)
