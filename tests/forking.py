"""A program that has imported torch and PyG, and forks a process for each program that a test runs.

Requests come over a socket: JSON, with the three standard streams and a pipe for the answers, the number of
the process and later its exit code. The process goes on to the end of this file, and ends as Python ends:
errors are shown, threads are waited for, ``atexit`` calls its functions. Only if ``whole`` is requested does
Python also empty its modules, which takes half a second, and find the exit code itself.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

exit_code: object = 0


def end() -> None:
    """Ends the process, unless Python shall. What is registered first with ``atexit`` is called last."""
    if not request["whole"]:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(exit_code if isinstance(exit_code, int) else exit_code is not None)


atexit.register(end)
# As in the command line: the first registers a function with atexit before torch does.
sys.argv[0] = "onehop"
for module in (
    "onehop.cli.script",
    "torch_geometric.nn",
    "onehop.cli.app",
    "onehop.cli.run",
    "onehop.distributed",
    "onehop.integrations.pyg.framework",
    "onehop.integrations.torch.framework",
    "pydantic.type_adapter",
):
    importlib.import_module(module)


def requested() -> dict[str, Any]:
    """Return a request, in the process that was forked for it."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    # Those that wait for a process are not waited for themselves.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1 << 20, 8)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            program = os.fork()
            if program == 0:
                asked: dict[str, Any] = json.loads(message)
                # Out of the way of the numbers that they get.
                passed = [fcntl.fcntl(file, fcntl.F_DUPFD, 200) for file in files[4:]]
                for number, file in enumerate(files[:3]):
                    os.dup2(file, number)
                close(files)
                for number, file in zip(asked["passed"], passed, strict=True):
                    os.dup2(file, number)
                close(passed)
                return asked
            close([*files[:3], *files[4:]])
            os.write(files[3], b"%d\n" % program)
            os.write(files[3], b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]))
            os._exit(0)
        close(files)


def close(files: list[int]) -> None:
    for file in files:
        os.close(file)


request = requested()
if request["whole"]:
    gc.freeze()  # what was imported is not collected, which takes a second
os.chdir(request["cwd"])
os.environ.clear()
os.environ.update(request["environment"])
# Was read when torch was imported.
if threads := os.environ.get("OMP_NUM_THREADS"):
    sys.modules["torch"].set_num_threads(int(threads))
first, *rest = request["command"]
here = request["cwd"] if first in ("-m", "-c") else str(Path(first).parent)
sys.path[:] = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *request["path"]]
try:
    if first == "-m":
        sys.argv = rest
        sys.modules["__main__"] = ModuleType("__main__")
        runpy._run_module_as_main(rest[0])
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = ModuleType("__main__")
        exec(rest[0], vars(sys.modules["__main__"]))
    else:
        sys.argv = request["command"]
        runpy.run_path(str(Path(first).absolute()), run_name="__main__")
except SystemExit as ended:
    exit_code = ended.code
    raise
except BaseException:
    exit_code = 1
    raise
