"""``torch.autocast("far")``, by the rules that torch has for CUDA; importing this makes it.

The rules are read from torch's own header, which its wheels have: which operations run in the lower
precision, which in float32, which in the widest dtype of their operands.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests.far_device import is_far

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
KEY = "AutocastPrivateUse1"


def rules(name: str) -> list[str]:
    """The operations of one of the header's lists, as "name" or "name.overload"."""
    found = re.search(rf"#define {name}\(_\)((?:.*\\\n)*.*)", HEADER.read_text())
    assert found is not None, f"{HEADER} has no {name}"
    entries: list[tuple[str, str]] = re.findall(r"_\((\w+)(?:, (\w+))?\)", found.group(1))
    return [".".join(filter(None, each)) for each in entries]


def _eligible(value: Any) -> bool:
    return is_far(value) and value.is_floating_point()


def _converted(values: Any, dtype: torch.dtype) -> Any:
    """As torch has it: float64 stays."""
    return tree_map(lambda v: v.to(dtype) if _eligible(v) and v.dtype is not torch.float64 else v, values)


def _lower(op: Any, args: Any, kwargs: Any) -> Any:
    dtype = torch.get_autocast_dtype("far")
    with torch._C._DisableAutocast():
        return op(*_converted(args, dtype), **_converted(kwargs, dtype))


def _float32(op: Any, args: Any, kwargs: Any) -> Any:
    with torch._C._DisableAutocast():
        return op(*_converted(args, torch.float32), **_converted(kwargs, torch.float32))


def _to_float32(op: Any, args: Any, kwargs: Any) -> Any:
    """Sums and the like: in float32, but where a dtype is asked for, or of float64."""
    if _eligible(args[0]) and args[0].dtype is not torch.float64 and kwargs.get("dtype") is None:
        kwargs = {**kwargs, "dtype": torch.float32}
    with torch._C._DisableAutocast():
        return op(*args, **kwargs)


def _promoted(op: Any, args: Any, kwargs: Any) -> Any:
    widest = torch.get_autocast_dtype("far")
    for value in tree_leaves((args, kwargs)):
        if _eligible(value):
            widest = torch.promote_types(widest, value.dtype)
    with torch._C._DisableAutocast():
        return op(*_converted(args, widest), **_converted(kwargs, widest))


RULES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "AT_FORALL_LOWER_PRECISION_FP": _lower,
    "AT_FORALL_FP32": _float32,
    "AT_FORALL_FP32_SET_OPT_DTYPE": _to_float32,
    "AT_FORALL_PROMOTE": _promoted,
}
EVERYTHING = torch.library.Library("_", "IMPL")
EVERYTHING.fallback(torch.library.fallthrough_kernel, KEY)
LIBRARY = torch.library.Library("aten", "IMPL")


def _register(operation: str, rule: Callable[[Any, Any, Any], Any]) -> None:
    name, _, overload = operation.partition(".")
    op = getattr(getattr(torch.ops.aten, name), overload or "default")
    LIBRARY.impl(operation, lambda *args, **kwargs: rule(op, args, kwargs), KEY)


for _list, _rule in RULES.items():
    for _operation in rules(_list):
        if hasattr(torch.ops.aten, _operation.partition(".")[0]) and _operation != "_convolution.deprecated":
            _register(_operation, _rule)


torch.far.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
