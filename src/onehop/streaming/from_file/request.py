"""The request of an ingest: its file, its columns, and how nodes are numbered."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from onehop.errors import ArgumentError, FileFormatError, check_choice
from onehop.graph.build import MOST_NODES
from onehop.storage import check_is_file

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
ARRAYS = (".npy", ".bin")
ENDINGS = (*PARQUET, *TEXT, *ARRAYS)
# The delimiter for one or more spaces and tabs, as in pandas.
BLANKS = r"\s+"
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": BLANKS}
# Dtypes of a raw file's numbers, which are node numbers or ids.
IdDtype = Literal["int32", "int64", "uint32", "uint64"]
WeightDtype = Literal["float32", "float64"]


@dataclass(frozen=True, slots=True)
class Request:
    """All that the result depends on except the file's contents: the arguments of :func:`onehop.ingest`.

    Weights and types of an array file are separate .npy files. ``nodes`` is (num_src, num_dst) or None, and
    ``one_set`` says whether sources and destinations are the same nodes.
    """

    path: Path
    source: str | None
    target: str | None
    weight: str | None
    edge_type: str | None
    nodes: tuple[int, int] | None
    bipartite: bool
    text_ids: bool
    delimiter: str | None
    header: bool | None
    dtype: str
    weight_dtype: str
    one_set: bool = True

    @property
    def parts(self) -> list[Path]:
        """The file; for a folder, its files sorted by name, without additional files of Spark and Hive."""
        if not self.path.is_dir():
            return [self.path]
        return sorted(each for each in self.path.iterdir() if each.name[0] not in "._")

    @property
    def ending(self) -> str:
        """The ending of the file name, or of the names in a folder, which determines the kind of file."""
        name = self.parts[0].name.lower()
        return max((each for each in ENDINGS if name.endswith(each)), key=len, default="")

    @property
    def separator(self) -> str:
        """The delimiter of a text file: the given delimiter, or the usual one for the file name's ending."""
        if self.delimiter is not None:
            return (
                "\t" if self.delimiter == r"\t" else self.delimiter
            )  # a shell passes it on as two characters
        return _DELIMITERS[self.ending.removesuffix(".gz")]

    def files(self) -> list[Path]:
        """The files that are read."""
        beside = [self.weight, self.edge_type] if self.ending in ARRAYS else []
        return [*self.parts, *(Path(each) for each in beside if each is not None)]

    def check(self) -> None:
        """Check that the arguments make sense together.

        Raises:
            ArgumentError: An argument has the wrong value, or two of them contradict each other.
            FileFormatError: The file's name does not indicate a kind that can be read.
            FileNotFoundError: The file does not exist.
        """
        if self.path.is_dir():
            self._check_folder()
        else:
            check_is_file(self.path)
        if not self.ending:
            raise FileFormatError(
                f"{self.path}: expected a file whose name ends in one of {', '.join(ENDINGS)}."
            )
        for path in self.files():
            check_is_file(path)
        for name, value, choices in (
            ("dtype", self.dtype, get_args(IdDtype)),
            ("weight_dtype", self.weight_dtype, get_args(WeightDtype)),
        ):
            check_choice(name, value, choices)
        if self.nodes is not None:
            self._check_nodes(self.nodes)
        if self.ending in ARRAYS:
            self._check_array()
        if self.ending not in TEXT and (self.delimiter is not None or self.header is not None):
            raise ArgumentError(f"delimiter, header: {self.path} is no text file; leave them out.")
        if self.delimiter is not None and (not self.delimiter or set(self.delimiter) & set('"\r\n\0')):
            raise ArgumentError(
                "delimiter: expected one character or more and no quotation mark or end of a line, or "
                f"{BLANKS} for runs of blanks, got {self.delimiter!r}."
            )

    def _check_folder(self) -> None:
        if not self.parts:
            raise FileFormatError(f"{self.path}: the folder is empty; expected {PARQUET[0]} files in it.")
        for part in self.parts:
            if part.is_dir() or not part.name.lower().endswith(PARQUET):
                raise FileFormatError(
                    f"{self.path}: a folder is read where it holds {PARQUET[0]} files alone, as Spark writes "
                    f"them, and {part.name} is none. Give a file, or write the table without partitions."
                )

    def _check_nodes(self, nodes: tuple[int, int]) -> None:
        if min(nodes) < 0 or max(nodes) > MOST_NODES:
            raise ArgumentError(f"nodes: expected 0 to {MOST_NODES}, got {nodes}.")
        if self.bipartite or self.text_ids:
            raise ArgumentError(
                "nodes: with it ids are node numbers and not mapped; leave out bipartite and text_ids, and "
                "give (num_src, num_dst) for a bipartite graph."
            )

    def _check_array(self) -> None:
        for name, column in (("source", self.source), ("target", self.target)):
            if column is not None:
                raise ArgumentError(
                    f"{name}: {self.path} has no named columns; leave it out. A .npy file is [2, E], sources "
                    "above destinations, or [E, 2]; a .bin file has pairs, sources first."
                )
        if self.text_ids:
            raise ArgumentError(f"text_ids: the ids in {self.path} are numbers; leave it out.")

    def as_json(self) -> dict[str, object]:
        """Return the request, ready for JSON."""
        return {**asdict(self), "path": str(self.path.resolve())}
