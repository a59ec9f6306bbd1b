"""A device that is not the CPU, for machines without another; importing this makes it, for the whole process.

The device's memory is the host's, but torch does not know that: whatever is not moved properly fails, or is
refused, as it is with a graphics card.
"""

import atexit
import os
import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("far")
# By storage, which copies of a tensor object share. Tensors are kept, so that no address is used again.
CONTENTS: dict[int, tuple[Tensor, Tensor]] = {}
# For which the host of a graphics card would wait, or copy: by name, in the order in which they came.
WAITS: list[str] = []
# Their results, or the sizes of these, depend on the contents of what they get.
_ASKING = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "bincount")


def far(content: Tensor) -> Tensor:
    """A tensor on the device with this content; views of rows share memory, others are copies."""
    content = content.contiguous()
    found: Tensor = torch._C._acc.create_empty_tensor(list(content.shape), content.dtype)
    CONTENTS[found.untyped_storage()._cdata] = found, content
    return found


def is_far(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "far"


def near(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return CONTENTS[value.untyped_storage()._cdata][1] if is_far(value) else value


def waits(op: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a host would wait for the device, as far as the operation tells."""
    name = op._schema.name.removeprefix("aten::")
    if name.startswith(_ASKING) or name.strip("_").startswith("unique"):
        return True
    if name == "_copy_from":
        return is_far(args[0]) is not is_far(args[1])
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
    return False


def on_device(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs an operation of the device, on the contents."""
    if waits(op, args, kwargs):
        WAITS.append(op._schema.name)
    if op is torch.ops.aten._copy_from.default:
        near(args[1]).copy_(near(args[0]))
        return args[1]
    if op is torch.ops.aten.as_strided.default:
        own, size, stride, offset = near(args[0]), args[1], args[2], args[3] if len(args) > 3 else 0
        return far(own.as_strided(size, stride, own.storage_offset() + (offset or 0)))
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim()]
    assert all(map(is_far, tensors)), f"{op} mixes devices"
    out = op(*tree_map(near, args), **tree_map(near, kwargs))
    if op._schema.is_mutable:
        given = [kwargs[each.name] for each in op._schema.arguments if each.is_out and each.name in kwargs]
        if len(given) > 1:
            return tuple(given)
        return given[0] if given else args[0]
    return tree_map(lambda each: far(each) if isinstance(each, Tensor) else each, out)


EVERYTHING = torch.library.Library("_", "IMPL")
EVERYTHING.fallback(on_device, "PrivateUse1")
# Else torch would make an empty tensor and have it resized.
FACTORIES = torch.library.Library("aten", "IMPL")
for factory in ("arange", "arange.start", "arange.start_step", "abs"):
    name, _, overload = factory.partition(".")
    operation = getattr(getattr(torch.ops.aten, name), overload or "default")
    FACTORIES.impl(factory, partial(on_device, operation), "PrivateUse1")


def leave() -> None:
    """Ends the process before Python goes down.

    The thread of torch that runs the device's backward pass holds Python objects. If it lets go of them only
    then, Python ends the thread, and C++ the process: "terminate called without an active exception".
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if hasattr(sys, "last_value") else 0)  # set where an exception ended the program


atexit.register(leave)


def move(model: Module) -> None:
    """Parameters and buffers, to the device."""
    for module in model.modules():
        for key, parameter in module._parameters.items():
            module._parameters[key] = None if parameter is None else Parameter(far(parameter.detach()))
        for key, buffer in module._buffers.items():
            module._buffers[key] = None if buffer is None else far(buffer)
