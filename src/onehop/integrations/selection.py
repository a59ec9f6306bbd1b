"""Selection of the frameworks and layers that ``patch(only=...)`` names."""

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from typing import Any

from onehop.errors import ArgumentError, ConfigurationError
from onehop.integrations.framework import DGL, PYG, TORCH, Framework, Selection

_made: dict[str, Framework] = {}


def made() -> tuple[Framework, ...]:
    """The frameworks that were ever patched in this process."""
    return tuple(_made.values())


def select(only: str | Iterable[str] | None) -> Selection:
    """Return the selection that ``patch(only=...)`` asks for.

    Args:
        only: "pyg", "dgl", "torch", or names of layer classes. Without PyG and DGL among them: PyG if it is
            installed, and DGL if it has been imported. Torch's functions are named, or come with None.

    Raises:
        ArgumentError: A layer that has no fast path in these frameworks.
        ConfigurationError: There is no framework, or one that is asked for cannot be used.
    """
    names = frozenset([only] if isinstance(only, str) else () if only is None else only)
    torch = (_make(TORCH),) if only is None or TORCH in names else ()
    layers = names - {PYG, DGL, TORCH}
    asked = [name for name in (PYG, DGL) if name in names]
    if torch and only is not None and not asked and not layers:
        return Selection(torch, frozenset())
    frameworks = tuple(_make(name) for name in asked or _present())
    if not layers:
        return Selection(frameworks + torch, None)
    known = tuple(dict.fromkeys(name for framework in frameworks for name in framework.layers()))
    unknown: list[Any] = sorted(str(name) for name in layers if name not in known)
    if unknown:
        raise ArgumentError(f"only: {', '.join(unknown)} has no fast path; there are {', '.join(known)}.")
    having = tuple(each for each in frameworks if not layers.isdisjoint(each.layers()))
    return Selection(having + torch, layers)


def _present() -> list[str]:
    present = [PYG] if importlib.util.find_spec("torch_geometric") is not None else []
    # One that is installed and not imported is left so: that takes seconds, and its layers are not in use.
    if "dgl" in sys.modules:
        present.append(DGL)
    if not present:
        raise ConfigurationError(
            "onehop.patch() found nothing to patch: torch_geometric is not installed, and DGL has not been "
            "imported. Install PyG with: pip install 'onehop[pyg]'; or import dgl first."
        )
    return present


def _make(name: str) -> Framework:
    if name not in _made:
        _made[name] = {PYG: _pyg, DGL: _dgl, TORCH: _torch}[name]()
    return _made[name]


def _torch() -> Framework:
    from onehop.integrations.torch.framework import Torch

    return Torch()


def _pyg() -> Framework:
    if importlib.util.find_spec("torch_geometric") is None:
        raise ConfigurationError(
            "onehop.patch(): torch_geometric is not installed. Install it with: pip install 'onehop[pyg]'"
        )
    from onehop.integrations.pyg.framework import Pyg

    return Pyg()


def _dgl() -> Framework:
    if "dgl" not in sys.modules:
        if importlib.util.find_spec("dgl") is None:
            raise ConfigurationError(
                "onehop.patch(): dgl is not installed. Install it with: pip install 'onehop[dgl]'"
            )
        try:
            importlib.import_module("dgl")
        except (ImportError, OSError) as error:
            raise ConfigurationError(
                f"onehop.patch(): dgl is installed and cannot be imported ({error}). Its wheels are each "
                f"made for some releases of torch: install one made for yours, until 'import dgl' works."
            ) from error
    from onehop.integrations.dgl.framework import Dgl

    return Dgl()
