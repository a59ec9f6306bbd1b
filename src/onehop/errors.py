"""onehop's exceptions. Every message names the argument, what was expected, what came, and what to do."""

import operator
from collections.abc import Collection


class OnehopError(Exception):
    """The base of every error that onehop raises on purpose."""


class ArgumentError(OnehopError, ValueError):
    """An argument has the wrong value, shape, dtype or device."""


class IndexRangeError(ArgumentError, IndexError):
    """A node number is outside the graph."""


class FileFormatError(OnehopError, ValueError):
    """A file is truncated, malformed, or of a kind that onehop does not read."""


class BackendError(OnehopError, RuntimeError):
    """No backend can run the requested call; the message says why each one refused."""


class ConfigurationError(OnehopError, ValueError):
    """An environment variable or a setting has a value that cannot be used."""


class DatasetError(OnehopError, RuntimeError):
    """A data set is not available: a package is not installed, or a download failed."""


class ExtensionError(OnehopError, ImportError):
    """The compiled kernels cannot be loaded: they are missing, or of another processor or Python."""


class StorageError(OnehopError, OSError):
    """A result cannot be written: the disk is full, permission is denied, or another run is writing it."""


class CommunicationError(OnehopError, RuntimeError):
    """Another process of a distributed job ended, or did not answer in time."""


class MachineMemoryError(OnehopError, MemoryError):
    """A plan needs more memory than a core of a simulated machine has.

    Attributes:
        core: Number of the core that needs most.
        memory: The memory, such as "MRAM".
        need_bytes: Bytes that the plan needs there.
        limit_bytes: Bytes available.
        plan: A plan that fits, or None if none was found.
    """

    def __init__(
        self, core: int, memory: str, need_bytes: int, limit_bytes: int, plan: object, hint: str
    ) -> None:
        super().__init__(
            f"plan: core {core} needs {need_bytes} bytes of {memory} and has {limit_bytes}. {hint}"
        )
        self.core = core
        self.memory = memory
        self.need_bytes = need_bytes
        self.limit_bytes = limit_bytes
        self.plan = plan


def integer(name: str, value: object, least: int | None = 0) -> int:
    """An argument that is an integer: Python's, NumPy's or a tensor's, but no truth value.

    Raises:
        ArgumentError: It is another value, or below ``least``, unless that is None.
    """
    is_truth = isinstance(value, bool) or "bool" in str(getattr(value, "dtype", ""))
    try:
        number = None if is_truth else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" of {least} or more"
        raise ArgumentError(f"{name}: expected an integer{bound}, got {value!r}.")
    return number


def check_choice(name: str, value: object, allowed: Collection[str]) -> None:
    """Refuses what is not among the allowed names.

    Raises:
        ArgumentError: It is not.
    """
    if value not in allowed:
        raise ArgumentError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}.")
