"""Runs the text of a program, with the patch or without, and notes what is to be seen after every step."""

import contextlib
import functools
import importlib.util
import io
import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from jinja2 import Environment, FileSystemLoader
from torch_geometric import template

import onehop
from onehop import thresholds
from tests.differential.messages.snapshot import Facts, facts_of

NAME = "own_messages_program"
"""The name of the module."""

BOUNDS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "ordinary": lambda: thresholds.changed(**_ORDINARY),
    "blocks": lambda: thresholds.changed(**{**_ORDINARY, "cached_bytes": 0}),
    "lifted": thresholds.lifted,
}
_ORDINARY = {name: getattr(thresholds.ORDINARY, name) for name in thresholds.ORDINARY.__slots__}


@dataclass(frozen=True)
class Observation:
    """What was seen after a step."""

    step: str
    error: str | None  # the class of what it raised
    message: str  # the first line of its text
    facts: Facts  # what can be reached, by its path


@dataclass
class Told:
    """What a program says while it runs."""

    out: io.StringIO
    err: io.StringIO
    lines: list[str]
    warned: list[Any]

    def all(self) -> dict[str, str]:
        """All of it so far."""
        own = [
            f"{each.category.__name__}: {each.message}"
            for each in self.warned
            if "own warning" in str(each.message)
        ]
        return {
            "printed": self.out.getvalue(),
            "printed as an error": self.err.getvalue(),
            "logged": "\n".join(self.lines),
            "warned": "\n".join(own),
        }


def run(text: str, patched: bool) -> list[Observation]:
    """What was seen at the start and after every step."""
    with _surroundings(text) as (path, told):
        module = _loaded(path, told)
        try:
            if not module.EARLY and patched:
                onehop.patch()
            s = module.start()
            if module.EARLY and patched:
                onehop.patch()
            seen = [_observed("start", None, module, s, told)]
            for name, step in module.STEPS:
                error = _raised(step, s)
                seen.append(_observed(name, error, module, s, told))
        finally:
            onehop.unpatch()
        return seen


def _raised(step: Callable[[Any], None], s: Any) -> BaseException | None:
    try:
        step(s)
    except Exception as error:  # what is raised is compared
        # How far a backward pass came before it raised is nothing that anybody promises.
        for leaf in (s.x, *s.more.values(), *s.layer.parameters()):
            leaf.grad = None
        return error.with_traceback(None)
    return None


def _observed(name: str, error: BaseException | None, module: Any, s: Any, told: Told) -> Observation:
    facts = facts_of(module, s)
    facts.update({f"what is {name}": text for name, text in told.all().items()})
    facts.update(_of_the_process())
    lines = str(error).strip().splitlines() if error is not None else []
    return Observation(
        name, None if error is None else type(error).__name__, lines[0] if lines else "", facts
    )


def _of_the_process() -> Facts:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the stream that messages draw from
    return {
        "torch's chance": str(hash(torch.get_rng_state().numpy().tobytes())),
        "Python's chance": str(hash(random.getstate())),
        "NumPy's chance": f"{kind} {hash(np.asarray(keys).tobytes())} {rest}",
        "grad mode": str(torch.is_grad_enabled()),
        "default dtype": str(torch.get_default_dtype()),
        "threads": str(torch.get_num_threads()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "anomaly": str(torch.is_anomaly_enabled()),
        "autocast": str(torch.is_autocast_enabled("cpu")),
        "environment": str(sorted(name for name in os.environ.items() if name[0].startswith("OWN"))),
        "files": str(
            {str(each): each.read_bytes() if each.is_file() else None for each in sorted(Path().rglob("*"))}
        ),
        "recursion limit": str(sys.getrecursionlimit()),
        "filters": str(len(warnings.filters)),
    }


def _loaded(path: Path, told: Told) -> Any:
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    handler = _Keeping(told.lines)
    logger = logging.getLogger("own")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    spec.loader.exec_module(module)
    return module


class _Keeping(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def _surroundings(text: str) -> Iterator[tuple[Path, Told]]:
    """Inside the block nothing is left of other programs, and afterwards nothing of this one."""
    modes = (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled())
    constant = BOUNDS[_constant(text)]
    environment = dict(os.environ)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work = folder / "work"
        work.mkdir()
        stack.enter_context(contextlib.chdir(work))
        # PyG writes the code of a class into files, and leaves them.
        before, tempfile.tempdir = tempfile.tempdir, str(folder)
        stack.callback(setattr, tempfile, "tempdir", before)
        stack.callback(_forget)
        stack.enter_context(mock.patch.object(template, "Environment", _environment))
        told = Told(
            io.StringIO(), io.StringIO(), [], stack.enter_context(warnings.catch_warnings(record=True))
        )
        warnings.simplefilter("always")
        stack.enter_context(contextlib.redirect_stdout(told.out))
        stack.enter_context(contextlib.redirect_stderr(told.err))
        stack.enter_context(torch.random.fork_rng([]))
        chance, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
        stack.callback(random.setstate, chance)
        stack.callback(np.random.set_state, numbers)
        stack.enter_context(constant())
        path = folder / f"{NAME}.py"
        path.write_text(text)
        try:
            yield path, told
        finally:
            dtype, threads, grad = modes
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
            torch.set_grad_enabled(grad)
            torch.use_deterministic_algorithms(False)
            os.environ.clear()
            os.environ.update(environment)
            onehop.clear_cache()


def _environment(loader: FileSystemLoader) -> Environment:
    return _environment_of(*loader.searchpath)


@functools.cache
def _environment_of(folder: str) -> Environment:
    """What PyG renders the code of a class with; it compiles its templates anew for every class otherwise."""
    return Environment(loader=FileSystemLoader(folder))


def _constant(text: str) -> str:
    for bounds in BOUNDS:
        if f"\nBOUNDS, EARLY, OTHERS = {bounds!r}, " in text:
            return bounds
    raise ValueError(
        "The text names no thresholds: expected a line BOUNDS, EARLY, OTHERS = ..., as scripts have."
    )


def _forget() -> None:
    """Lets the module be imported anew, and what PyG made of its classes."""
    for name in [each for each in sys.modules if each.startswith(NAME)]:
        del sys.modules[name]
