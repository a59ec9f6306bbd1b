"""Bytes that a process holds, counted by looking at all objects that it has."""

import gc
import warnings
from collections.abc import Iterable

import torch

import onehop


def held_bytes(known: Iterable[torch.Tensor]) -> int:
    """Bytes of all tensors and graphs of this process, without the known tensors."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that warn when their attributes are looked at
        found = gc.get_objects()
        tensors = [each for each in found if isinstance(each, torch.Tensor)]
        graphs = [each for each in found if type(each) is onehop.Graph]
    known_storages = {each.untyped_storage().data_ptr() for each in known}
    sizes = {}
    for each in tensors:
        storage = storage_of(each)
        if storage.data_ptr() not in known_storages:
            sizes[storage.data_ptr()] = storage.nbytes()
    for graph in graphs:
        for csr in (graph.csr, graph._transpose, *graph.ordered.values()):
            if csr is not None:
                sizes[id(csr)] = csr.bytes
    return sum(sizes.values())


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """The storage, whatever the tensor's class does with its attributes."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.untyped_storage()
