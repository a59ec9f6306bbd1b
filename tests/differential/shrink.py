"""The smallest program that still differs in the same way."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tests.differential.compare import Difference
from tests.differential.layers import KINDS
from tests.differential.program import Layer, Program, Spec

P = TypeVar("P")


def shrunk(
    program: P,
    found: Difference,
    judge: Callable[[P], Difference | None],
    smaller: Callable[[P, Difference], Iterator[P]],
    seconds: float,
) -> tuple[P, Difference]:
    """A smaller program, and its difference, of the same sort, found within so many seconds."""
    deadline = time.monotonic() + seconds
    tried = {program}
    going = True
    while going:
        going = False
        for tried_now in smaller(program, found):
            if time.monotonic() > deadline:
                return program, found
            if tried_now in tried:
                continue
            tried.add(tried_now)
            verdict = judge(tried_now)
            if verdict is not None and verdict.sort == found.sort:
                program, found, going = tried_now, verdict, True
                break
    return program, found


def smaller(program: Program, found: Difference) -> Iterator[Program]:
    """Programs that are one thing smaller, those that are much smaller first."""
    yield dataclasses.replace(program, steps=program.steps[: found.number])
    steps = program.steps
    for size in (8, 4, 2, 1):
        for start in range(0, len(steps), size):
            yield dataclasses.replace(program, steps=steps[:start] + steps[start + size :])
    for name in ("models", "graphs", "features"):
        entries = getattr(program, name)
        for i in range(len(entries)):
            if len(entries) > 1:
                yield dataclasses.replace(program, **{name: entries[:i] + entries[i + 1 :]})
    for i, model in enumerate(program.models):
        for j in range(len(model.layers)):
            if len(model.layers) > 1:
                fewer = dataclasses.replace(model, layers=model.layers[:j] + model.layers[j + 1 :])
                yield dataclasses.replace(program, models=_with(program.models, i, fewer))
    yield from _simpler(program)


def _with(values: tuple[Any, ...], position: int, value: Any) -> tuple[Any, ...]:
    return (*values[:position], value, *values[position + 1 :])


def _simpler(value: Any) -> Iterator[Any]:
    """The same spec with one field nearer to its default."""
    if isinstance(value, Layer):
        yield from _simpler_layer(value)
    for field in dataclasses.fields(value):
        now = getattr(value, field.name)
        if isinstance(now, Spec):
            for inner in _simpler(now):
                yield dataclasses.replace(value, **{field.name: inner})
        elif isinstance(now, tuple):
            for i, each in enumerate(now):
                if isinstance(each, Spec):
                    for inner in _simpler(each):
                        yield dataclasses.replace(value, **{field.name: _with(now, i, inner)})
        elif field.default is not dataclasses.MISSING and now != field.default:
            yield dataclasses.replace(value, **{field.name: field.default})
            if isinstance(now, int) and not isinstance(now, bool):
                for fewer in (now // 2, now - 1):
                    if (
                        fewer > (field.default if isinstance(field.default, int) else 0)
                        or field.name in _COUNTS
                    ):
                        yield dataclasses.replace(value, **{field.name: max(fewer, 0)})


_COUNTS = ("nodes", "edges")


def _simpler_layer(layer: Layer) -> Iterator[Layer]:
    for i in range(len(layer.options)):
        yield dataclasses.replace(layer, options=layer.options[:i] + layer.options[i + 1 :])
    for name in ("Plain", "GCNConv", "SAGEConv", "GATConv"):
        # Nearer the front of this list is simpler.
        if name == layer.name:
            break
        options = tuple((key, value) for key, value in layer.options if key in KINDS[name].choices)
        yield dataclasses.replace(layer, name=name, options=options)
