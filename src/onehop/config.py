"""Settings, read from the environment when they are used.

=============================  =========================================================  ==================
variable                       meaning                                                    default
=============================  =========================================================  ==================
``ONEHOP_ISA``                 instruction set of the CPU kernels (``onehop info`` lists  the best there is
                               what this processor has)
``ONEHOP_POOL_BYTES``          bytes of freed outputs kept for reuse                      a quarter of memory,
                                                                                          at most 8 GiB
``ONEHOP_CACHE_BYTES``         bytes of graphs and derived tensors that the patch keeps   a quarter of memory
``ONEHOP_DEVICE_CACHE_BYTES``  the same on each GPU                                       a quarter of its
                                                                                          memory
``ONEHOP_KEEP_MEMORY``         ``0``: torch's tensors take no memory from the pool        ``1``
``ONEHOP_REUSE``               ``0``: the patch computes aggregates of constant features  ``1``
                               every time
``ONEHOP_ASSOCIATE``           ``0``: patched layers keep the order of linear step and    ``1``
                               aggregation that they are written in
``ONEHOP_DROPOUT``             ``0``: the patch leaves torch's dropout alone              ``1``
``ONEHOP_PRODUCTS``            ``0``: the patch leaves torch's products alone             ``1``
``ONEHOP_INDEXING``           ``0``: the patch leaves torch's gathers and scatters alone ``1``
``ONEHOP_SAMPLER``             ``1``: patched loaders draw neighbours with onehop's       where PyG has no
                               sampler; ``0``: never                                      pyg-lib
``ONEHOP_DISABLE``             ``1``: ``patch()`` does nothing                            ``0``
``ONEHOP_CHECK``               ``full``: the patch compares the contents of every         ``version``
                               ``edge_index`` with the cached ones, not only the version
``ONEHOP_TUNED``               ``0``: plans that were tuned earlier are not used          ``1``
``ONEHOP_THRESHOLDS``          ``none``: code with a size threshold runs at every size,   ``ordinary``
                               for tests (:mod:`onehop.thresholds`)
``ONEHOP_CACHE_DIR``           where generated graphs and tuning results are kept         the user's cache
=============================  =========================================================  ==================
"""

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from onehop.errors import ConfigurationError

if TYPE_CHECKING:
    import torch


def isa() -> str | None:
    """Return the requested instruction set; None means the best available one."""
    return os.environ.get("ONEHOP_ISA") or None


def pool_bytes() -> int:
    """Return the number of bytes of freed outputs that are kept for reuse."""
    return _bytes("ONEHOP_POOL_BYTES", min(physical_memory_bytes() // 4, 8 << 30))


def graph_cache_bytes() -> int:
    """Return the number of bytes of graphs and derived tensors that the patch keeps."""
    return _bytes("ONEHOP_CACHE_BYTES", physical_memory_bytes() // 4)


def device_cache_bytes(device: "torch.device") -> int:
    """Return the number of bytes of graphs and derived tensors that the patch keeps on a GPU."""
    return _bytes("ONEHOP_DEVICE_CACHE_BYTES", device_memory_bytes(device) // 4)


def keep_memory() -> bool:
    """Return whether torch's large tensors take their memory from the pool under the patch."""
    return _flag("ONEHOP_KEEP_MEMORY", default=True)


def reuse() -> bool:
    """Return whether the patch keeps aggregates of constant features."""
    return _flag("ONEHOP_REUSE", default=True)


def associate() -> bool:
    """Return whether the patch lets layers multiply and aggregate in the cheaper order."""
    return _flag("ONEHOP_ASSOCIATE", default=True)


def dropout() -> bool:
    """Return whether the patch replaces torch's dropout."""
    return _flag("ONEHOP_DROPOUT", default=True)


def products() -> bool:
    """Return whether the patch sends the products of linear steps to the fastest library."""
    return _flag("ONEHOP_PRODUCTS", default=True)


def indexing() -> bool:
    """Return whether the patch replaces torch's large gathers and scatters."""
    return _flag("ONEHOP_INDEXING", default=True)


def sampler() -> bool | None:
    """Return whether patched loaders draw with onehop's sampler; None means if PyG has no pyg-lib."""
    if os.environ.get("ONEHOP_SAMPLER", "") == "":
        return None
    return _flag("ONEHOP_SAMPLER", default=True)


def tuned() -> bool:
    """Return whether earlier tuned plans are used."""
    return _flag("ONEHOP_TUNED", default=True)


def disabled() -> bool:
    """Return whether ``patch()`` does nothing."""
    return _flag("ONEHOP_DISABLE", default=False)


def full_check() -> bool:
    """Return whether cached graphs are compared with the tensor's contents at every use."""
    value = os.environ.get("ONEHOP_CHECK", "version")
    if value not in ("version", "full"):
        raise ConfigurationError(f"ONEHOP_CHECK must be 'version' or 'full', not {value!r}.")
    return value == "full"


def without_thresholds() -> bool:
    """Return whether size thresholds are ignored, for tests."""
    value = os.environ.get("ONEHOP_THRESHOLDS", "ordinary")
    if value not in ("ordinary", "none"):
        raise ConfigurationError(f"ONEHOP_THRESHOLDS must be 'ordinary' or 'none', not {value!r}.")
    return value == "none"


def cache_dir() -> Path:
    """Return the folder for generated graphs and tuning results; it is made when something is written."""
    chosen = os.environ.get("ONEHOP_CACHE_DIR")
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("onehop"))


@functools.cache
def physical_memory_bytes() -> int:
    """Return the size of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@functools.cache
def device_memory_bytes(device: "torch.device") -> int:
    """Return the size of a device's memory; the machine's memory if torch does not report it."""
    import torch

    if device.type != "cuda":
        return physical_memory_bytes()
    return int(torch.cuda.get_device_properties(device).total_memory)


def _bytes(name: str, default: int) -> int:
    value = os.environ.get(name)
    if value is None or value == "":
        return default
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < 0:
        raise ConfigurationError(f"{name} must be a number of bytes, zero or more, not {value!r}.")
    return number


def _flag(name: str, *, default: bool) -> bool:
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise ConfigurationError(f"{name} must be 0 or 1, not {value!r}.")
    return default if value == "" else value == "1"
