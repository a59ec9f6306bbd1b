"""What all plans share: they are frozen dataclasses that check their fields, and go to and from JSON."""

import json
from dataclasses import asdict, fields
from typing import Any, Self

from onehop.errors import ArgumentError

# Numbers of edges, columns or sources beyond this mean nothing, and sums with them would leave 64 bits.
MOST_COUNT = 1 << 48


class Plan:
    """Every choice made before a run, as data. Subclasses are frozen dataclasses."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, ready for JSON."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def to_json(self) -> str:
        """The plan as a JSON object."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The plan that :meth:`to_json` wrote.

        Raises:
            ArgumentError: The text is no JSON object, has a field that such plans do not have, or a value
                that they cannot have.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"plan: not JSON ({error}).") from error
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The plan with these fields; those that are left out have their defaults.

        Raises:
            ArgumentError: Not a dictionary, it has a field that such plans do not have, or a value that they
                cannot have.
        """
        if not isinstance(values, dict):
            raise ArgumentError(f"plan: expected a JSON object, got {type(values).__name__}.")
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ArgumentError(
                f"plan: unknown field {', '.join(unknown)}; a {cls.__name__} has {', '.join(known)}."
            )
        return cls(**values)
