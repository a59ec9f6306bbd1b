"""The two kinds of random programs: models of layers, and a layer with a message of its own."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.differential import check, generate, shrink
from tests.differential.compare import Difference
from tests.differential.interpreter import run
from tests.differential.messages import generate as messages, judge, smaller

AnyProgram = Any
"""A program of either kind: both are frozen data, with ``steps`` and ``listed()``."""


@dataclass(frozen=True)
class Kind:
    """A kind of programs.

    Attributes:
        generate: The program of a seed.
        difference: How it differs with and without the patch; None if it does not.
        alone: Runs it without the patch.
        smaller: Programs that are one thing smaller, where it differs in this way.
    """

    generate: Callable[[int], AnyProgram]
    difference: Callable[[AnyProgram], Difference | None]
    alone: Callable[[AnyProgram], object]
    smaller: Callable[[AnyProgram, Difference], Iterator[AnyProgram]]


def _alone(program: AnyProgram) -> None:
    run(program, patched=False)


MODELS = Kind(generate.generate, check.difference, _alone, shrink.smaller)
MESSAGES = Kind(messages.generate, judge.difference, judge.alone, smaller.smaller)
BY_NAME: Mapping[str, Kind] = {"models": MODELS, "messages": MESSAGES}
