"""Tests of a changed source, in forks of one process that has imported torch and PyG but never onehop.

A child imports onehop from a copy of the source under ``build/mutants``, and so do the processes that its
tests start; the source that is worked on is never touched. An import hook serves for this, since an editable
install may have one of its own.
"""

import compileall
import contextlib
import fcntl
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import hypothesis
import pytest

BUILD = Path("build/mutants").absolute()
SOURCE = Path("src/onehop").absolute()
COPY = BUILD / "source" / "onehop"
FAILED = BUILD / "failed.txt"
CAUGHT_BY_TIME = 124
# More than any test needs. A mutant that allocates without end fails instead of taking the machine along.
MOST_BYTES = 8 << 30

_held: list[Any] = []

_HOOK = '''"""Makes onehop the copy beside this file."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

HERE = str(Path(__file__).parent)


class Copy:
    """Finds onehop here."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, path or [HERE]) if name.partition(".")[0] == "onehop" else None


if Copy not in sys.meta_path:
    sys.meta_path.insert(0, Copy)
'''


class Unshrunk:
    """A plugin: hypothesis draws the same examples every time and does not seek the smallest that fails."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Replaces the profile that conftest.py has loaded."""
        del config
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings(phases=phases, database=None, derandomize=True)
        )
        hypothesis.settings.load_profile("mutants")


class Failure:
    """A plugin: writes down which test failed."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first alone: tests end with it."""
        if report.failed:
            FAILED.write_text(report.nodeid)

    def finish(self) -> None:
        """Nothing is left to be done."""


def prepare() -> None:
    """Copies the source, and imports what takes long."""
    BUILD.mkdir(parents=True, exist_ok=True)
    lock = (BUILD / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
    except BlockingIOError:
        raise SystemExit(f"{BUILD} is in use: only one run at a time has its mutants there") from None
    _held.append(lock)
    shutil.rmtree(COPY.parent, ignore_errors=True)
    shutil.copytree(SOURCE, COPY, ignore=shutil.ignore_patterns("__pycache__"))
    (COPY.parent / "sitecustomize.py").write_text(_HOOK)
    compileall.compile_dir(COPY, quiet=1)
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(COPY.parent), os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": "1",
        "TRITON_INTERPRET": "1",
    }
    sys.path.insert(0, str(Path.cwd()))
    exec(compile(_HOOK, str(COPY.parent / "sitecustomize.py"), "exec"), {"__file__": str(COPY.parent / "x")})
    import torch_geometric.nn  # noqa: F401


def write(path: Path, text: str) -> None:
    """Puts another text for a module into the copy, and removes what was compiled of the text before."""
    copied = COPY / path.relative_to(SOURCE)
    copied.write_text(text)
    # Python would take it for up to date: the time of both texts may be the same.
    for compiled in copied.parent.glob(f"__pycache__/{copied.stem}.*.pyc"):
        compiled.unlink()


def restore(path: Path) -> None:
    """Puts the text of the source back."""
    write(path, path.read_text())
    compileall.compile_file(COPY / path.relative_to(SOURCE), quiet=1)


def run(tests: list[str], seconds: float, *plugins: Any) -> int:
    """Runs tests in a fork, and says how it ended: 0 where all passed, else as pytest or the shell would."""
    child = os.fork()
    if child == 0:
        os.setsid()
        _be_tested(tests, plugins)
    until = time.monotonic() + seconds
    done, status = os.waitpid(child, os.WNOHANG)
    while not done and time.monotonic() < until:
        time.sleep(0.05)
        done, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what the tests have started and left
    if not done:
        os.waitpid(child, 0)
        return CAUGHT_BY_TIME
    return os.waitstatus_to_exitcode(status)


def _be_tested(tests: list[str], plugins: tuple[Any, ...]) -> None:
    """Never returns."""
    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with (BUILD / "output.txt").open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        # Plugins of pytest that are imported already are not rewritten, which it warns of.
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        options += [f"--basetemp={BUILD / 'tmp'}"]
        code = int(pytest.main([*options, *tests], plugins=[Unshrunk(), *plugins]))
        for plugin in plugins:
            plugin.finish()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
