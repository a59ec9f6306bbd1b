"""Memory use of a process."""

import resource
import sys
from pathlib import Path

_IS_TOLD = Path("/proc/self/status").exists()


def peak_bytes() -> int:
    """Return the maximum resident memory of this process so far.

    On Linux this is VmHWM, because ``ru_maxrss`` would also count the parent's memory before ``exec``
    (proc(5), getrusage(2)). Elsewhere it is ``ru_maxrss``, which macOS gives in bytes and other systems in
    KiB.
    """
    if _IS_TOLD:
        return status_bytes("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int:
    """Return this process's resident memory now; if the system does not report it, the peak."""
    return status_bytes("VmRSS") if _IS_TOLD else peak_bytes()


def status_bytes(field: str, process: int | str = "self") -> int:
    """Return the bytes that Linux reports for a process under a name such as VmRSS (proc(5)).

    Raises:
        OSError: There is no such process or no such field.
    """
    path = Path(f"/proc/{process}/status")
    for line in path.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path} has no field {field}.")
