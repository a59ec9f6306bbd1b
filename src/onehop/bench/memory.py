"""Memory use of a process."""

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """The most memory this process has had resident.

    On Linux this is VmHWM: ``ru_maxrss`` would count the parent's memory before ``exec`` as well (proc(5),
    getrusage(2)). Elsewhere it is ``ru_maxrss``, which macOS gives in bytes and others in KiB.
    """
    if _STATUS.exists():
        return _status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int:
    """The memory this process has resident now; where the system does not tell, the peak."""
    return _status("VmRSS") if _STATUS.exists() else peak_bytes()


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no field {field}.")
