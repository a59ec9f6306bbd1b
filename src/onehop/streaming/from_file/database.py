"""DuckDB with bounded memory, with progress reports, and with its errors as sentences."""

import errno
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from onehop import extras
from onehop.errors import ArgumentError, FileFormatError, StorageError

# Called with the current step, and the share of it that is done, 0 to 1.
Progress = Callable[[str, float], None]

# DuckDB itself requires about as much per thread for all work; with less, no sort begins.
LEAST_BYTES = 64 << 20
_ASKED_EVERY_S = 0.2


class Unreadable(FileFormatError):
    """Raised if DuckDB cannot read the file."""


class Database:
    """A DuckDB file and its spilled data, in a separate folder that exists.

    Error sentences name ``source``, the file that is read. DuckDB uses at most ``memory`` bytes. ``progress``
    is called with the share of a query that is done.

    Raises:
        ConfigurationError: DuckDB is not installed.
        StorageError: The folder cannot be written.
    """

    def __init__(self, folder: Path, source: Path, memory: int, threads: int, progress: Progress) -> None:
        with extras.needed("onehop.ingest", "ingest"):
            import duckdb
        self._duckdb, self._folder, self._source, self.progress = duckdb, folder, source, progress
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory}B",
            "threads": threads,
            "temp_directory": str(folder / "spilled"),
            "preserve_insertion_order": True,
            # Nothing may be fetched from the network while a file is read.
            "autoinstall_known_extensions": False,
        }
        with self._reported():
            self._connection = duckdb.connect(str(folder / "work.duckdb"), config=settings)
            self._connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")

    def run(self, query: str, what: str = "") -> None:
        """Run a query without a result; ``what`` describes it for progress reports."""
        with self._reported(), self._watched(what):
            self._connection.execute(query)

    def row(self, query: str) -> tuple[Any, ...]:
        """Return the first row of a result."""
        return self._rows(query)[0]  # these queries count or find an extreme, so there is always a row

    def arrays(self, query: str) -> dict[str, np.ndarray]:
        """Return a result as arrays, one per column."""
        with self._reported():
            columns: dict[str, np.ndarray] = self._connection.execute(query).fetchnumpy()
        return columns

    def kinds(self, relation: str) -> dict[str, str]:
        """Return the columns of a relation and their types."""
        return {row[0]: row[1] for row in self._rows(f"DESCRIBE {relation}")}

    def tables(self) -> set[str]:
        """Return the tables that exist."""
        return {row[0] for row in self._rows("SHOW TABLES")}

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._reported():
            rows: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return rows

    def append(self, table: str, columns: Mapping[str, np.ndarray]) -> None:
        """Append arrays to a table whose columns are in the same order."""
        with self._reported():
            self._connection.register("onehop_block", dict(columns))
            # DuckDB reads NaN in an array as a missing value.
            picked = (
                f"coalesce({name}, 'nan')" if each.dtype.kind == "f" else name
                for name, each in columns.items()
            )
            self._connection.execute(f"INSERT INTO {table} SELECT {', '.join(picked)} FROM onehop_block")
            self._connection.unregister("onehop_block")

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Run the block as a transaction: all of it takes effect, or nothing."""
        self.run("BEGIN")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            # After some errors, the transaction or even the database connection is gone.
            with suppress(self._duckdb.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _watched(self, what: str) -> Iterator[None]:
        """Report a query's progress from another thread, because Ctrl-C must reach the waiting thread."""
        if not what:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_ASKED_EVERY_S):
                # A value below 0 means unknown.
                self.progress(what, max(self._connection.query_progress(), 0.0) / 100)

        self.progress(what, 0.0)
        watcher = threading.Thread(target=watch, name="onehop-progress")
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
        self.progress(what, 1.0)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        duckdb = self._duckdb
        try:
            yield
        except duckdb.Error as error:
            # The rest of the message quotes our query.
            text = " ".join(re.split(r"\sLINE \d+:", str(error))[0].split())
            if "No space left" in text or "max_temp_directory_size" in text or "File too large" in text:
                failure = StorageError(
                    f"out: the disk of {self._folder} is full ({_short(text)}). Make room and call again: "
                    "what is done is kept."
                )
                failure.errno = errno.ENOSPC
                raise failure from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise ArgumentError(
                    f"memory: what it allows is too little for this file ({_short(text)}). Give more memory "
                    "or fewer threads, and call again: what is done is kept."
                ) from error
            if isinstance(error, duckdb.IOException) and str(self._folder) in text:
                raise StorageError(f"out: {self._folder} cannot be used ({_short(text)}).") from error
            raise Unreadable(
                f"{self._source}: cannot be read ({_short(text)}). Look whether it is whole, and write it "
                "again if it is not."
            ) from error

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def quoted(name: str) -> str:
    """Return a column's name, quoted for a query."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text, quoted for a query."""
    return "'" + text.replace("'", "''") + "'"


def _short(text: str, most: int = 300) -> str:
    return text if len(text) <= most else text[:most] + " ..."
