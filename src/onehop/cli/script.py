"""Running somebody's script or module inside this process, as ``python`` would."""

import importlib.util
import re
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from onehop.cli.exit_codes import FAILED, INTERRUPTED
from onehop.errors import ArgumentError

_IMPORTS_DGL = re.compile(r"^\s*(?:import|from)\s+dgl\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script, or a module.

    Attributes:
        name: The script's path, or the module's dotted name.
        is_module: Whether it is a module, as after ``python -m``.
        arguments: What it finds in ``sys.argv``, behind its own name.
    """

    name: str
    is_module: bool
    arguments: tuple[str, ...]

    @property
    def source(self) -> Path:
        """The file.

        Raises:
            ArgumentError: There is none.
        """
        if not self.is_module:
            path = Path(self.name)
            if path.is_file():
                return path
            if path.is_dir() and (path / "__main__.py").is_file():
                return path / "__main__.py"
            raise ArgumentError(f"{self.name}: no such script. For a module, write -m before its name.")
        for name in (f"{self.name}.__main__", self.name):
            try:
                found = importlib.util.find_spec(name)
            except ModuleNotFoundError:
                continue
            if found is not None and found.origin is not None and Path(found.origin).is_file():
                return Path(found.origin)
        raise ArgumentError(f"{self.name}: no such module. For a script, omit -m.")

    def imports_dgl(self) -> bool:
        """Return whether it imports DGL itself: the patch finds it only where it is imported."""
        return _IMPORTS_DGL.search(self.source.read_text(errors="replace")) is not None

    def run(self) -> int:
        """Return the exit code, once it has run; errors are shown as ``python`` shows them."""
        sys.argv = [self.name, *self.arguments]
        try:
            if self.is_module:
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(self.source.resolve().parent))
                runpy.run_path(self.name, run_name="__main__")
        except SystemExit as ended:
            return _exit_code(ended.code)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BaseException as error:  # whatever it is: the program would end with it
            trace = self._own(error.__traceback__)
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            return FAILED
        return 0

    def _own(self, trace: TracebackType | None) -> TracebackType | None:
        """The part of a traceback from the script on; none where it did not begin to run."""
        file = str(self.source) if self.is_module else self.name
        while trace is not None and trace.tb_frame.f_code.co_filename != file:
            trace = trace.tb_next
        return trace


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    sys.stderr.write(f"{code}\n")
    return FAILED


def script(name: str, is_module: bool, arguments: Sequence[str]) -> Script:
    """Return a script that is there.

    Raises:
        ArgumentError: It is not.
    """
    if is_module:
        sys.path.insert(0, "")  # as python -m does: it is looked for here, too
    found = Script(name, is_module, tuple(arguments))
    _ = found.source
    return found
