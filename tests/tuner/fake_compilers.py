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
_BODIES = {
    "failing": "sys.exit('kernel.cpp:1: error: no such luck')",
    "silent": "sys.exit(0)",
    "hanging": "time.sleep(600)",
    "empty": "pathlib.Path(library).write_bytes(b'')",
    "honest": "sys.exit(subprocess.call([{real!r}, *arguments]))",
    # Compiles another text: sums count every message twice.
    "wrong": """
text = pathlib.Path(source).read_text()
text = text.replace("value += message;", "value += message + message;")
text = text.replace("sums[chain][v] += message;", "sums[chain][v] += message + message;")
pathlib.Path(source).write_text(text)
sys.exit(subprocess.call([{real!r}, *arguments]))
""",
    # The kernel ends the process that runs it.
    "crashing": """
text = pathlib.Path(source).read_text()
text = text.replace("value += message;", "__builtin_trap();")
text = text.replace("sums[chain][v] += message;", "__builtin_trap();")
pathlib.Path(source).write_text(text)
sys.exit(subprocess.call([{real!r}, *arguments]))
""",
    # Right for small whole numbers, as in the trial, and wrong elsewhere.
    "sly": """
whole = "convert<Acc<T>, int, kLanes>(convert<int, Acc<T>, kLanes>(message))"
text = pathlib.Path(source).read_text()
text = text.replace("value += message;", "value += " + whole + ";")
text = text.replace("sums[chain][v] += message;", "sums[chain][v] += " + whole + ";")
pathlib.Path(source).write_text(text)
sys.exit(subprocess.call([{real!r}, *arguments]))
""",
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
