"""Counts the bytes of cached objects."""

from collections.abc import Hashable, Iterable
from typing import Any

import torch

_HOST = torch.device("cpu")
# Types of most fields, which have no bytes; they are skipped first.
_BARE = (int, float, bool, str, torch.dtype, type(None))


def bytes_of_graph(
    natives: Iterable[Any], index: torch.Tensor | None, derived: dict[Hashable, Any]
) -> dict[torch.device, int]:
    """Count the bytes of a graph on each device; the host is always included.

    Args:
        natives: The native graphs; None for those that do not exist.
        index: The index from which the graph was made, or None.
        derived: The data derived from the graph.
    """
    totals = bytes_held(derived)
    host_bytes = sum(int(each.bytes) for each in natives if each is not None)
    host_bytes += 0 if index is None else index.nbytes
    totals[_HOST] = totals.get(_HOST, 0) + host_bytes
    return totals


def bytes_held(value: Any) -> dict[torch.device, int]:
    """Count the bytes of the tensors, graphs and other arrays in a value, on each device.

    If an object has ``nbytes_by_device``, this is used; otherwise its ``nbytes``, such as a tensor's, count
    for its ``device`` (the host if it has none). For tuples, lists, dictionaries and dataclasses, their
    contents count, each object once. Other objects, such as numbers and weak references, have no bytes.
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
        # The most frequent type comes first, because this runs whenever a value is cached.
        if kind is torch.Tensor:
            totals[each.device] = totals.get(each.device, 0) + each.nbytes
            continue
        if isinstance(each, tuple | list):
            waiting += each
            continue
        if isinstance(each, dict):
            # The list is a copy, because another thread may add entries meanwhile.
            waiting += list(each.values())
            continue
        by_device = getattr(each, "nbytes_by_device", None)
        if by_device is None and (nbytes := getattr(each, "nbytes", None)) is not None:
            device = getattr(each, "device", _HOST)
            # NumPy's arrays also have a device, which is a string.
            by_device = {device if isinstance(device, torch.device) else _HOST: int(nbytes)}
        if by_device is None:
            waiting += [getattr(each, name) for name in getattr(kind, "__dataclass_fields__", ())]
            continue
        for device, count in by_device.items():
            totals[device] = totals.get(device, 0) + count
    return totals
