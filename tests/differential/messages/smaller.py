"""Programs that are one thing smaller than another."""

import dataclasses
from collections.abc import Iterator

from tests.differential.compare import Difference
from tests.differential.messages.program import SORTS, Program


def smaller(program: Program, found: Difference) -> Iterator[Program]:
    """Those that are much smaller come first."""
    yield dataclasses.replace(program, steps=program.steps[: found.number])
    for i in range(len(program.steps)):
        yield dataclasses.replace(program, steps=(*program.steps[:i], *program.steps[i + 1 :]))
    for i in range(len(program.parts)):
        yield dataclasses.replace(program, parts=(*program.parts[:i], *program.parts[i + 1 :]))
    for field in dataclasses.fields(program):
        if field.name not in ("steps", "parts", "size") and getattr(program, field.name) != field.default:
            yield dataclasses.replace(program, **{field.name: field.default})
    for step in ("call", "backward"):
        for i in range(len(program.steps)):
            yield dataclasses.replace(program, steps=(*program.steps[:i], step, *program.steps[i + 1 :]))
            if program.steps[i] in ("call", step):
                break
    for i, part in enumerate(program.parts):
        for j, table in enumerate(SORTS[part.sort].tables.values()):
            first = next(iter(table))
            words = (*part.words[:j], first, *part.words[j + 1 :])
            shorter = dataclasses.replace(part, words=words)
            yield dataclasses.replace(program, parts=(*program.parts[:i], shorter, *program.parts[i + 1 :]))
