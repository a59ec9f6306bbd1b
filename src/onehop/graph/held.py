"""Counts the bytes of what is kept."""

from collections.abc import Hashable, Iterable
from typing import Any

import torch

_HOST = torch.device("cpu")
# What most fields are; left out first.
_BARE = (int, float, bool, str, torch.dtype, type(None))


def bytes_of_graph(
    natives: Iterable[Any], index: torch.Tensor | None, derived: dict[Hashable, Any]
) -> dict[torch.device, int]:
    """Count the bytes of a graph on each device; on the host also where there are none.

    Args:
        natives: Its native graphs; None for those that are not there.
        index: The index that it was made from, or None.
        derived: What was made from it.
    """
    totals = bytes_held(derived)
    host_bytes = sum(int(each.bytes) for each in natives if each is not None)
    host_bytes += 0 if index is None else index.nbytes
    totals[_HOST] = totals.get(_HOST, 0) + host_bytes
    return totals


def bytes_held(value: Any) -> dict[torch.device, int]:
    """Count the bytes of the tensors, graphs and other arrays in a value, on each device.

    An object's ``nbytes_by_device`` counts as it is; its ``nbytes``, such as a tensor's, count on its
    ``device`` (on the host if it has none). Tuples, lists, dictionaries and dataclasses
    count as what is in them, and what is in them twice counts once. Everything else has no bytes, such as
    numbers and weak references.
    """
    totals: dict[torch.device, int] = {}
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind in _BARE or id(each) in seen:
            continue
        seen.add(id(each))
        # What most values are comes first: it is counted whenever one is kept.
        if kind is torch.Tensor:
            totals[each.device] = totals.get(each.device, 0) + each.nbytes
            continue
        if isinstance(each, tuple | list):
            waiting += each
            continue
        if isinstance(each, dict):
            # A copy, because another thread may add to it meanwhile.
            waiting += list(each.values())
            continue
        by_device = getattr(each, "nbytes_by_device", None)
        if by_device is None and (nbytes := getattr(each, "nbytes", None)) is not None:
            device = getattr(each, "device", _HOST)
            # NumPy's arrays have a device too, a string.
            by_device = {device if isinstance(device, torch.device) else _HOST: int(nbytes)}
        if by_device is None:
            waiting += [getattr(each, name) for name in getattr(kind, "__dataclass_fields__", ())]
            continue
        for device, count in by_device.items():
            totals[device] = totals.get(device, 0) + count
    return totals
