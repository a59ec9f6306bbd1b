"""onehop's exceptions. Messages name the argument, what was expected, what was passed, and what to do."""

import operator
from collections.abc import Collection


class OnehopError(Exception):
    """The base class of all errors that onehop raises on purpose."""


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
    """The compiled kernels cannot be loaded: they are missing, or for another processor or Python."""


class StorageError(OnehopError, OSError):
    """A result cannot be written: the disk is full, permission is denied, or another run is writing it."""


class CommunicationError(OnehopError, RuntimeError):
    """Another process of a distributed job ended, or did not answer in time."""


class MachineMemoryError(OnehopError, MemoryError):
    """A plan needs more memory than a core of a simulated machine has.

    Attributes:
        core: The number of the core that needs most memory.
        memory: The name of the memory, such as "MRAM".
        need_bytes: The bytes that the plan needs in this memory.
        limit_bytes: The bytes available.
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
    """Return an integer argument as an int; integers of NumPy and tensors are accepted, booleans are not.

    Raises:
        ArgumentError: ``value`` is not an integer, or below ``least`` (None: no bound).
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
    """Raise unless a value is one of the allowed names.

    Raises:
        ArgumentError: The value is not allowed.
    """
    if value not in allowed:
        raise ArgumentError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}.")
