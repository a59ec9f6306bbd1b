"""The programs in the folder ``scripts``, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[1] / "scripts"


def load(name: str) -> ModuleType:
    """One of them, by its path in the folder without ``.py``."""
    spec = importlib.util.spec_from_file_location(f"scripts.{name.replace('/', '.')}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    sys.path.insert(0, str(FOLDER))  # as where a program of it is started
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module
