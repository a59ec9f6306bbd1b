"""``onehop run`` beside ``python``: a program prints the same, sees the same of itself, ends the same."""

import os
import py_compile
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from tests.processes import Forked, started, text

REPORT = re.compile(r"layers *\nlayer .*\n-+\n(?:.*\n)+?\d+\.\d s, .* at the peak\.\n")
# What triton says at the very end of objects that gc.freeze, in forking.py, keeps alive.
FROZEN = re.compile(r"nanobind: leaked(?s:.*?)refleaks\.html\n?")

ITSELF = '''
"""A program."""
from __future__ import annotations
names = sorted(globals())
import argparse, atexit, dataclasses, inspect, pickle, sys, typing, warnings

if __package__:
    from . import beside
else:
    import beside

@dataclasses.dataclass
class Own:
    number: int = 3

def function(own: Own) -> typing.Any:
    return own

print(names, __name__, __doc__, __file__, __cached__, __package__, type(__builtins__), __annotations__)
print(getattr(__loader__, "__name__", type(__loader__).__name__), beside.WHERE)
print(__spec__ and (__spec__.name, __spec__.origin, __spec__.parent, type(__spec__.loader).__name__))
print(sys.argv, repr(sys.path[0]), sys.modules["__main__"].__dict__ is globals())
print(pickle.loads(pickle.dumps(Own())), typing.get_type_hints(function), argparse.ArgumentParser().prog)
print(inspect.getmodule(function), __file__ == "<stdin>" or inspect.getsource(function))
print(sys.excepthook is sys.__excepthook__, sys.exc_info(), sys.stdout is sys.__stdout__)
warnings.warn("a warning", DeprecationWarning)
atexit.register(lambda: print(__name__, sys.modules["__main__"].Own(), file=sys.stderr))
'''

CHAIN = """
import atexit, sys, traceback

def inner():
    raise ValueError("inner")

def outer():
    try:
        inner()
    except ValueError as error:
        several = ExceptionGroup("several", [KeyError("one"), error])
        several.add_note("a note")
        raise several from error

atexit.register(lambda: print(sys.last_type, traceback.extract_tb(sys.last_traceback)))
outer()
"""

HOOK = """
import sys, traceback

def hook(kind, error, trace):
    print(kind, error, traceback.extract_tb(trace), error.__traceback__ is trace)

def fail():
    raise BrokenPipeError(32, "its own")

sys.excepthook = hook
fail()
"""

THREADS = """
import atexit, sys, threading

for each in threading.enumerate():
    if each is not threading.main_thread():
        each.join()

def late():
    threading.main_thread().join()
    print("late", file=sys.stderr)

atexit.register(print, "at exit", file=sys.stderr)
threading.Thread(target=late).start()
thread = threading.Thread(target=sys.exit, args=[4])
thread.start()
thread.join()
print("main ends", threading.active_count(), file=sys.stderr)
"""

FORK = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12, of other threads: one takes the samples
print("before", flush=True)
if os.fork():
    print(os.waitstatus_to_exitcode(os.wait()[1]))
else:
    sys.exit(5)
"""

WORKERS = """
import multiprocessing, sys, time

class Own:
    pass

def work(own):
    return __name__, type(own) is Own, sys.argv

def late():
    time.sleep(0.5 if "fork" in sys.argv else 0)  # enough for a report that would not wait
    print("not joined", file=sys.stderr)

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(1) as pool:
        print(pool.map(work, [Own()]))
    multiprocessing.Process(target=late).start()
"""

RANK = """
import os, sys, warnings
print(os.environ["RANK"], os.environ["WORLD_SIZE"], sys.argv, __name__, sys.flags, sys.warnoptions, sys.path)
try:
    warnings.warn("an error")
except UserWarning as error:
    print(repr(error))
"""

RUNPY = """
import runpy, sys
print(runpy.run_path("beside.py", run_name="__main__")["WHERE"], runpy.run_module("beside")["WHERE"])
del sys.modules["__main__"]
print(__name__, __file__)
"""

GONE = """
import os
os.remove(__file__)
os.chdir("/")
raise ValueError
"""

INTERRUPT = """
import atexit, os, signal, sys
atexit.register(print, "at exit", file=sys.stderr)
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
os.kill(os.getpid(), signal.SIGINT)
"""

DEBUGGED = "x = 3\nbreakpoint()\nprint(x)\n"


@dataclass(frozen=True)
class Form:
    """A program and a way to run it.

    Attributes:
        source: What ``main.py`` and the other files that can be run contain.
        command: What follows ``python``.
        stdin: Standard input.
        whole: Whether its very end is looked at: its exit code, and streams that Python flushes.
        pipe: Whether nothing reads its standard output.
        reports: Whether it comes to a report.
        launcher: The module that starts ``python``.
    """

    source: str | bytes
    command: str = "main.py"
    stdin: str = ""
    whole: bool = False
    pipe: bool = False
    reports: bool = True
    launcher: str = ""


end = partial(Form, whole=True)

FORMS = {
    "script": Form(ITSELF, "./main.py a --report b -- -m"),
    "script in another folder": Form(ITSELF, "pkg/mod.py"),
    "module": Form(ITSELF, "-m pkg.mod a --only b"),
    "package": Form(ITSELF, "-m pkg"),
    "folder": Form(ITSELF, "./folder/ a"),
    "zip file": Form(ITSELF, "archive.zip"),
    "standard input": Form("", "- a -", stdin=ITSELF),
    "compiled": Form(ITSELF, "compiled.pyc"),
    "no such module": Form("", "-m pkg.nowhere"),
    "a file's name as a module": Form("", "-m main.py"),
    "no main in a folder": Form("", "empty"),
    "encoding": Form("# coding: latin-1\nprint(ascii('\xe9'))".encode("latin-1")),
    "byte order mark": Form("\ufeffprint('\xe9')"),
    "syntax": Form("print(1)\ndef\n"),
    "syntax of a module": Form("print(1)\nx = '''\n", "-m pkg.mod"),
    "error": Form(CHAIN),
    "error of a module": Form(CHAIN, "-m pkg.mod"),
    "error without a file": Form(GONE),
    "hook": Form(HOOK),
    "end of input": Form("input()"),
    "dgl": Form("try:\n    import dgl\nexcept ImportError as error:\n    print(error)\n"),
    "exit with text": end("import sys; sys.exit('a last word')"),
    "exit with a large number": end("raise SystemExit((1 << 40) + 259)"),
    "exit by a subclass": end("class Own(SystemExit): pass\nraise Own(-1)", "-m pkg.mod"),
    "_exit": Form("import os; os._exit(9)", reports=False),
    "exec": Form("import os, sys; os.execv(sys.executable, ['python', '-c', 'print(1)'])", reports=False),
    "interrupt": end(INTERRUPT),
    "interrupt of a module": end(INTERRUPT, "-m pkg.mod"),
    "subclass of an interrupt": end("class Own(KeyboardInterrupt): pass\nraise Own"),
    "termination": Form("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", reports=False),
    "closed output": end("import sys; print('x'); sys.stdout.close()"),
    "closed errors": end("import sys; print('x'); sys.stderr.close()", reports=False),
    "closed file": end("import os; print('x', flush=True); os.close(1)"),
    "lost output": end("import os; print('x'); os.close(1)"),
    "broken pipe": end("print('x')", pipe=True),
    "broken pipe, early": end("print('x' * 100000)", pipe=True),
    "replaced output": end("import sys; sys.stdout = open('out', 'w'); print(1); sys.stderr = None"),
    "failure at exit": end("import atexit; atexit.register(lambda: 1 / 0); print(1)"),
    "threads": end(THREADS),
    "fork": Form(FORK),
    "workers forked": Form(WORKERS, "main.py fork"),
    "workers spawned": Form(WORKERS, "main.py spawn"),
    "workers of a module spawned": Form(WORKERS, "-m pkg.mod spawn"),
    "workers of a server": Form(WORKERS, "main.py forkserver"),
    "debugger": Form(DEBUGGED, stdin="p x\nc\n"),
    "debugger left": Form(DEBUGGED, stdin="q\n"),
    "debugger as a module": Form("x = 3\nprint(x)\n", "-m pdb main.py", stdin="n\nn\np x\nq\n"),
    "runpy": Form(RUNPY),
    "torchrun, warnings as errors": Form(
        RANK, "main.py a", launcher="-m torch.distributed.run --standalone --nproc-per-node 1"
    ),
}


def lay_out(form: Form, folder: Path) -> None:
    source = form.source.encode() if isinstance(form.source, str) else form.source
    for place, parent in ((".", b""), ("pkg", b"import sys\nprint('parent', sys.argv)\n"), ("folder", b"")):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / "__init__.py").write_bytes(parent)
        (folder / place / "beside.py").write_bytes(b"WHERE = __name__\n")
        for name in ("main.py", "mod.py", "__main__.py"):
            (folder / place / name).write_bytes(source)
    (folder / "empty").mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        for name in ("__main__.py", "beside.py"):
            archive.write(folder / name, name)
    if form.command == "compiled.pyc":
        py_compile.compile(str(folder / "main.py"), str(folder / "compiled.pyc"))


def ended(start: Callable, run: list[str], form: Form, folder: Path) -> tuple[int, str, str]:
    """The exit code, output and errors of a form."""
    lay_out(form, folder)
    with TemporaryFile("w+") as given, TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        given.write(form.stdin)
        given.seek(0)
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as broken:
            process = start(
                [*form.launcher.split(), *run, *form.command.split()],
                folder,
                os.environ | ({"PYTHONWARNINGS": "error"} if form.launcher else {}),
                given,
                broken if form.pipe else output,
                errors,
            )
        try:
            code = process.wait(120)
        finally:
            process.kill()
        # Functions are written with their addresses.
        said = (re.sub(" at 0x[0-9a-f]+", "", text(each)) for each in (output, errors))
        return code, *said


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_program_runs_as_under_python(form, tmp_path):
    alone = ended(Forked if form.launcher else started, [], form, tmp_path)
    code, output, errors = ended(partial(Forked, whole=form.whole), ["-m", "onehop", "run"], form, tmp_path)
    *before, after = REPORT.split(FROZEN.sub("", errors))
    assert (code, output, "".join(before) + after) == alone
    assert len(before) == form.reports
    # Python's last words, on streams that it could not flush, alone follow the report.
    assert not before or not after or after.startswith("Exception ignored in: <_io.TextIOWrapper")
