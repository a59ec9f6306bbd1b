"""The choices of the CPU kernels."""

import json
from dataclasses import asdict, dataclass, fields

from onehop.errors import ArgumentError

# Column numbers are padded by this many entries (Csr::kPadding), so that reading ahead stays inside.
MOST_PREFETCH = 64


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """How the CPU kernels go over a graph.

    Attributes:
        edges_per_item: Edges in a piece of work. Rows longer than this are cut, shorter ones never.
        prefetch: How many edges ahead a source row is asked for; 0 to 64.
        column_tile: Columns done in one pass over the graph; 0 means all of them.
        nontemporal: Write results past the caches, which saves reading their lines first; of use where they
            are larger than the caches. Applies to rows that are whole cache lines.
        threads: Most threads to use; 0 means torch's number.
    """

    edges_per_item: int = 4096
    prefetch: int = 16
    column_tile: int = 0
    nontemporal: bool = False
    threads: int = 0

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, least in (("edges_per_item", 1), ("prefetch", 0), ("column_tile", 0), ("threads", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ArgumentError(f"plan: {name} must be an integer of at least {least}, not {value!r}.")
        if not isinstance(self.nontemporal, bool):
            raise ArgumentError(f"plan: nontemporal must be true or false, not {self.nontemporal!r}.")
        if self.prefetch > MOST_PREFETCH:
            raise ArgumentError(f"plan: prefetch must be at most {MOST_PREFETCH}, not {self.prefetch}.")

    def to_json(self) -> str:
        """The plan as a JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "CpuPlan":
        """The plan that :meth:`to_json` wrote.

        Raises:
            ArgumentError: The text is no JSON object, or has a field that plans do not have.
        """
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArgumentError(f"plan: not JSON ({error}).") from error
        if not isinstance(values, dict):
            raise ArgumentError(f"plan: expected a JSON object, got {type(values).__name__}.")
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            known = ", ".join(field.name for field in fields(cls))
            raise ArgumentError(f"plan: unknown field {', '.join(sorted(unknown))}; a plan has {known}.")
        return cls(**values)
