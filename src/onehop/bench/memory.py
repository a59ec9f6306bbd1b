"""Memory use of a process."""

import resource
import sys
from pathlib import Path

_IS_TOLD = Path("/proc/self/status").exists()


def peak_bytes() -> int:
    """The most memory this process has had resident.

    On Linux this is VmHWM: ``ru_maxrss`` would count the parent's memory before ``exec`` as well (proc(5),
    getrusage(2)). Elsewhere it is ``ru_maxrss``, which macOS gives in bytes and others in KiB.
    """
    if _IS_TOLD:
        return status_bytes("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int:
    """The memory this process has resident now; where the system does not tell, the peak."""
    return status_bytes("VmRSS") if _IS_TOLD else peak_bytes()


def status_bytes(field: str, process: int | str = "self") -> int:
    """The bytes that Linux tells of a process under such a name, as VmRSS (proc(5)).

    Raises:
        OSError: There is no such process, or no such field.
    """
    path = Path(f"/proc/{process}/status")
    for line in path.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path} has no field {field}.")
