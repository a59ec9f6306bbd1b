"""Compilers that misbehave, as programs: each notes that it was called, and then does what its name says."""

import shutil
import sys
from pathlib import Path

REAL = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)

_HEAD = """\
#!{python}
import pathlib, re, subprocess, sys, time
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("fake 1.0")
    sys.exit(0)
with open({log!r}, "a") as log:
    log.write("called\\n")
source = next((a for a in arguments if a.endswith(".cpp")), None)
library = arguments[arguments.index("-o") + 1]
"""
_COMPILE = "sys.exit(subprocess.call([{real!r}, *arguments]))"
_COMPILE_WITH = """
text = pathlib.Path(source).read_text()
for total in ("value", "sums[chain][v]"):
    text = text.replace(total + " += message;", {statement!r}.replace("TOTAL", total))
pathlib.Path(source).write_text(text)
"""
# What those that compile another text put in place of the addition of a message.
_STATEMENTS = {
    "wrong": "TOTAL += message + message;",
    # The kernel ends the process that runs it.
    "crashing": "__builtin_trap();",
    # Right for small whole numbers, as in the trial, and wrong elsewhere.
    "sly": "TOTAL += convert<Acc<T>, int, kLanes>(convert<int, Acc<T>, kLanes>(message));",
}
_BODIES = {
    "failing": "sys.exit('kernel.cpp:1: error: no such luck')",
    "silent": "sys.exit(0)",
    "hanging": "time.sleep(600)",
    "empty": "pathlib.Path(library).write_bytes(b'')",
    "honest": _COMPILE,
    **{
        kind: _COMPILE_WITH.replace("{statement!r}", repr(statement)) + _COMPILE
        for kind, statement in _STATEMENTS.items()
    },
}


def fake_compiler(folder: Path, kind: str) -> tuple[Path, Path]:
    """Writes a compiler into ``folder``; the program, and the file with a line for each call."""
    program, log = folder / f"{kind}-c++", folder / f"{kind}.log"
    text = (_HEAD + _BODIES[kind]).replace("{python}", sys.executable)
    program.write_text(text.replace("{log!r}", repr(str(log))).replace("{real!r}", repr(REAL)))
    program.chmod(0o755)
    return program, log


def calls(log: Path) -> int:
    """How often it was asked to compile."""
    return len(log.read_text().splitlines()) if log.exists() else 0
