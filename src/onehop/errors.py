"""What onehop raises. Every message names the argument, what was expected, what came, and what to do."""


class OnehopError(Exception):
    """The base of every error that onehop raises on purpose."""


class ArgumentError(OnehopError, ValueError):
    """An argument has the wrong value, shape, dtype or device."""


class IndexRangeError(ArgumentError, IndexError):
    """A node number lies outside the graph."""


class FileFormatError(OnehopError, ValueError):
    """A file is truncated, malformed, or of a kind that onehop does not read."""


class BackendError(OnehopError, RuntimeError):
    """No backend can run what was asked for; the message says why each one refused."""


class ConfigurationError(OnehopError, ValueError):
    """An environment variable or a setting has a value that cannot be used."""


class DatasetError(OnehopError, RuntimeError):
    """A data set cannot be had: a package is not installed, or a download failed."""
