"""A script or a module as the main program of this process, as ``python`` runs it."""

import atexit
import builtins
import contextlib
import io
import os
import pkgutil
import re
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from onehop.errors import ArgumentError

_IMPORTS = re.compile(rb"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
_STDIN = "-"

# Closed when Python ends. It is registered before torch and multiprocessing register their functions, so it
# is called after them, when processes that the program started have been joined. Forked processes do not run
# it.
at_end = contextlib.ExitStack()
atexit.register(at_end.close)
os.register_at_fork(after_in_child=at_end.pop_all)


class Handover(BaseException):
    """Leaves the command line for a program; Python then handles the program's errors and exit code."""

    def __init__(self, program: "Script") -> None:
        super().__init__()
        self.program = program


@dataclass(frozen=True, slots=True)
class Script:
    """A program to run.

    Attributes:
        name: The path of a script, or of a folder or zip file with a ``__main__.py``; ``-`` for standard
            input; or a module's dotted name.
        is_module: Whether ``name`` is a module, as after ``python -m``.
        arguments: The program's arguments, which follow its name in ``sys.argv``.
        source: The content of a script; None if ``runpy`` finds the code.
    """

    name: str
    is_module: bool
    arguments: tuple[str, ...]
    source: bytes | None

    @property
    def file(self) -> str:
        """The absolute path of a script, a folder or a zip file; ``./`` stays in it, as with Python."""
        return "<stdin>" if self.name == _STDIN else os.path.join(Path.cwd(), self.name)  # noqa: PTH118

    def packages(self) -> set[str]:
        """Return the packages that the program's first file imports."""
        source = self.source
        if source is None:
            module = self.name.replace(".", "/")
            places = [Path(folder, module) for folder in sys.path] if self.is_module else [self.file]
            files = [Path(f"{place}{end}") for place in places for end in ("/__main__.py", ".py")]
            source = next((file.read_bytes() for file in files if file.is_file()), b"")
        return {name.decode() for name in _IMPORTS.findall(source)}

    def run(self) -> None:
        """Run the program, and raise the exception that ends it.

        ``sys`` and the module ``__main__`` stay as the program leaves them, because threads, functions of
        ``atexit`` and processes of ``multiprocessing`` need them until Python has ended.
        """
        main = sys.modules["__main__"] = ModuleType("__main__")
        vars(main)["__builtins__"] = builtins
        if sys.version_info < (3, 14):
            vars(main)["__annotations__"] = {}
        sys.argv = ["-m" if self.is_module else self.name, *self.arguments]
        try:
            if self.source is None:
                # ``python`` itself calls this function.
                runpy._run_module_as_main(  # type: ignore[attr-defined]
                    self.name if self.is_module else "__main__", alter_argv=self.is_module
                )
            else:
                self._execute(self.source, vars(main))
        except SystemExit:
            raise
        except BaseException as error:
            _shown_without_us(error)
            raise

    def _execute(self, source: bytes, names: dict[str, object]) -> None:
        names.update(__file__=self.file, __cached__=None, __loader__=BuiltinImporter)
        code = pkgutil.read_code(io.BytesIO(source))
        if self.name != _STDIN:
            loader = SourceFileLoader if code is None else SourcelessFileLoader
            names["__loader__"] = loader("__main__", self.file)
        exec(code or compile(source, self.file, "exec", dont_inherit=True), names)


def _shown_without_us(error: BaseException) -> None:
    """Make Python show the error that ends the program without the frames of onehop that called it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> None:
        sys.excepthook, sys.last_traceback = hook, trace
        hook(kind, value.with_traceback(trace), trace)

    sys.excepthook = show


def script(name: str, is_module: bool, arguments: Sequence[str]) -> Script:
    """Return a program, after setting ``sys.path`` as ``python`` sets it for the program.

    Raises:
        ArgumentError: The file does not exist.
    """
    source = folder = None
    if is_module:
        folder = str(Path.cwd())
    elif name == _STDIN:
        source, folder = sys.stdin.buffer.read(), ""
    elif not Path(name).exists():
        raise ArgumentError(f"{name}: no such script. For a module, write -m before its name.")
    elif pkgutil.get_importer(name) is None:
        source, folder = Path(name).read_bytes(), str(Path(name).resolve().parent)
    found = Script(name, is_module, tuple(arguments), source)
    if not sys.flags.safe_path:
        del sys.path[0]  # Python looked for onehop's own command here
    if folder is None:
        sys.path.insert(0, found.file)
    elif not sys.flags.safe_path:
        sys.path.insert(0, folder)
    return found
