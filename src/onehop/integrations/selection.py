"""The selection of a patch: the frameworks and layers that ``only`` names."""

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any

from onehop.backends import backends
from onehop.backends.machine import MachineBackend
from onehop.errors import ArgumentError, ConfigurationError
from onehop.integrations import releases
from onehop.integrations.session import DGL, MACE, NEQUIP, PYG, TORCH, Framework, Selection
from onehop.loading import imported
from onehop.machines.base import Machine

MODULES = {DGL: "dgl", MACE: "mace.modules", NEQUIP: "nequip.nn"}
"""The frameworks that are patched if the program has imported a module of theirs.

The imports take seconds, and a program without them has no layers of these frameworks.
"""
_NAMES = (PYG, *MODULES)

_frameworks: dict[str, Framework] = {}
"""The frameworks that have been patched in this process, by name."""


def select(only: str | Iterable[str] | None) -> Selection:
    """Return the frameworks and layers that ``patch(only=...)`` names.

    Args:
        only: "pyg", "dgl", "mace", "nequip", "torch", or names of layer classes. If no framework is named,
            PyG is selected if it is installed, and each other one if it has been imported. Torch's functions
            are included if "torch" is named or ``only`` is None.

    Raises:
        ArgumentError: A layer has no fast path in these frameworks.
        ConfigurationError: No framework is available, or a named one cannot be used.
    """
    names = frozenset([only] if isinstance(only, str) else () if only is None else only)
    torch = (_framework(TORCH),) if only is None or TORCH in names else ()
    layers = names - {*_NAMES, TORCH}
    named = [name for name in _NAMES if name in names]
    if torch and only is not None and not named and not layers:
        return Selection(torch, frozenset())
    frameworks = tuple(_framework(name) for name in named or _present())
    if not layers:
        return Selection(frameworks + torch, None)
    available = tuple(dict.fromkeys(name for framework in frameworks for name in framework.layers()))
    unknown: list[Any] = sorted(str(name) for name in layers if name not in available)
    if unknown:
        raise ArgumentError(f"only: {', '.join(unknown)} has no fast path; there are {', '.join(available)}.")
    having = tuple(framework for framework in frameworks if not layers.isdisjoint(framework.layers()))
    return Selection(having + torch, layers)


def _present() -> list[str]:
    present = [PYG] if importlib.util.find_spec("torch_geometric") is not None else []
    present += [name for name, module in MODULES.items() if imported(module) is not None]
    if not present:
        raise ConfigurationError(
            "onehop.patch() found nothing to patch: torch_geometric is not installed, and none of DGL, MACE "
            "and NequIP has been imported. Install PyG with: pip install 'onehop[pyg]'; or import dgl, "
            "mace.modules or nequip.nn first."
        )
    return present


def _framework(name: str) -> Framework:
    if name not in _frameworks:
        _frameworks[name] = {PYG: _pyg, DGL: _dgl, TORCH: _torch, MACE: _mace, NEQUIP: _nequip}[name]()
        releases.warn_of_newer(name)
    return _frameworks[name]


def _torch() -> Framework:
    from onehop.integrations.torch.framework import Torch

    return Torch()


def _pyg() -> Framework:
    if importlib.util.find_spec("torch_geometric") is None:
        raise ConfigurationError(
            "onehop.patch(): torch_geometric is not installed. Install it with: pip install 'onehop[pyg]'"
        )
    with releases.supported(PYG):
        from onehop.integrations.pyg.framework import Pyg

        return Pyg()


def _dgl() -> Framework:
    if imported("dgl") is None:
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
    with releases.supported(DGL):
        from onehop.integrations.dgl.framework import Dgl

        return Dgl()


def _mace() -> Framework:
    _import(MACE, "mace-torch")
    from onehop.integrations.equivariant.mace import Mace

    return Mace()


def _nequip() -> Framework:
    _import(NEQUIP, "nequip")
    from onehop.integrations.equivariant.nequip import NequIP

    return NequIP()


def _import(name: str, distribution: str) -> None:
    """Imports the module that a named framework is known by."""
    try:
        importlib.import_module(MODULES[name])
    except ImportError as error:
        raise ConfigurationError(
            f"onehop.patch(): {MODULES[name]} cannot be imported ({error}). Install it with: "
            f"pip install {distribution}"
        ) from error


def check_runner(selection: Selection, machine: Machine | None, backend: str | None) -> None:
    """Raises unless the machine or the backend can run the selection."""
    if machine is not None and (isinstance(machine, type) or not isinstance(machine, Machine)):
        raise ArgumentError(
            f"machine: expected a simulated machine, got {machine!r:.60}; "
            "give one such as onehop.machines.pim.Machine()."
        )
    for name, runner, what in (
        ("machine", machine, "simulated machines run"),
        ("backend", backend, "a named backend runs"),
    ):
        if runner is not None and all(framework.name != PYG for framework in selection.frameworks):
            raise ArgumentError(f"{name}: {what} PyG's layers alone; omit {name}.")
    if machine is not None and backend is not None:
        raise ArgumentError("machine, backend: the machine is a backend; give one of them.")
    if backend is None:
        return
    if backend not in backends():
        raise ArgumentError(f"backend: {backend!r} is unknown; there are {', '.join(backends())}.")
    if isinstance(backends()[backend], MachineBackend):
        raise ArgumentError(
            f"backend: {backend!r} is a machine; give machine=onehop.machines.{backend}.Machine()."
        )
