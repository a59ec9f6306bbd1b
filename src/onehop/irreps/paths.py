"""The products of features that are computed: irreps of operands and results, and paths between them."""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from onehop.errors import ArgumentError
from onehop.irreps.notation import MOST_DEGREE, Irrep, dim_of, parsed, written

MODES = ("uvu", "uvw")


class Path(NamedTuple):
    """One product of an irrep of x and an irrep of the harmonics.

    Attributes:
        x: Place of the irrep in x.
        harmonics: Place of the irrep in the harmonics.
        out: Place of the irrep in the output.
        mode: "uvu": channel u of the output comes from channel u of x, with one weight a channel. "uvw":
            channel w of the output is a sum over all channels u of x, with a weight for each pair.
        factor: The number that all products of the path are multiplied with.
    """

    x: int
    harmonics: int
    out: int
    mode: str
    factor: float


class TensorPaths:
    """The paths of a tensor product of features with spherical harmonics.

    The coefficients, their signs and normalisation are those of e3nn's ``TensorProduct`` with
    ``irrep_normalization="component"`` and ``path_normalization="element"``: for independent entries of
    variance 1, each entry of the output of a single edge has variance 1.

    Paths are immutable and may be used as keys. Coefficients are computed at their first use, and kept.

    Attributes:
        dim_x: Columns of x.
        dim_harmonics: Columns of the harmonics.
        dim_out: Columns of the output.
        weight_shapes: For each path, in order, the shape of its weights: [channels]; of "uvw" [channels of x,
            channels of the output].
        weight_numel: The number of weights of all paths.

    Args:
        x: The irreps of x, in the notation of e3nn, such as "32x0e+32x1o": multiplicity, degree l (up to 4)
            and parity. An ``Irreps`` of e3nn is accepted too.
        harmonics: The irreps of the harmonics, each of multiplicity 1, such as "0e+1o+2e".
        out: The irreps of the output.
        instructions: For each path a tuple ``(i_x, i_harmonics, i_out)``, the places of its irreps, which
            "uvu" or "uvw" may follow (default "uvu"), and then the path's weight in the normalisation
            (default 1.0), as in e3nn.

    Raises:
        ArgumentError: A text is no irreps, a place does not exist, or no product allows a path: degrees must
            satisfy abs(l1 - l2) <= l3 <= l1 + l2, parities must multiply, and channels of "uvu" must agree.

    Examples:
        >>> import onehop
        >>> paths = onehop.TensorPaths("8x0e+8x1o", "0e+1o", "8x1o+8x0e", [(0, 1, 0), (1, 0, 0), (1, 1, 1)])
        >>> paths.dim_x, paths.dim_harmonics, paths.dim_out, paths.weight_numel
        (32, 4, 32, 24)
        >>> onehop.TensorPaths.between("8x0e+8x1o", "0e+1o", up_to=1).out_irreps
        '8x0e+8x1o+8x1o+8x0e+8x1e'
    """

    # Fields are computed once, because each call of the operator reads them.
    x: tuple[Irrep, ...]
    harmonics: tuple[Irrep, ...]
    out: tuple[Irrep, ...]
    paths: tuple[Path, ...]
    dim_x: int
    dim_harmonics: int
    dim_out: int
    weight_shapes: tuple[torch.Size, ...]
    weight_numel: int
    text: str
    unmixed: "TensorPaths"
    spread: "TensorPaths"

    __slots__ = ("__weakref__", *__annotations__)

    def __init__(self, x: Any, harmonics: Any, out: Any, instructions: Iterable[Sequence[Any]]) -> None:
        irreps = parsed("x", x), _singles(harmonics), parsed("out", out)
        paths = [_checked(*irreps, instruction) for instruction in instructions]
        if any(path.factor < 0 for path in paths):
            raise ArgumentError(
                f"instructions: expected weights of 0 or more, got {min(path.factor for path in paths)}."
            )
        self._fill(*irreps, _normalised(irreps[0], irreps[2], paths))

    @classmethod
    def between(cls, x: Any, harmonics: Any, *, up_to: int) -> "TensorPaths":
        """Return all "uvu" paths whose output has a degree of at most ``up_to``, each to an irrep of its own.

        Args:
            x: The irreps of x.
            harmonics: The irreps of the harmonics, each of multiplicity 1.
            up_to: The largest degree l of the output.

        Raises:
            ArgumentError: A text is no irreps, or ``up_to`` is not from 0 to 4.
        """
        if isinstance(up_to, bool) or not isinstance(up_to, int) or not 0 <= up_to <= MOST_DEGREE:
            raise ArgumentError(f"up_to: expected a degree from 0 to {MOST_DEGREE}, got {up_to!r}.")
        out: list[Irrep] = []
        instructions = []
        pairs = itertools.product(enumerate(parsed("x", x)), enumerate(parsed("harmonics", harmonics)))
        for (at_x, left), (at_harmonics, right) in pairs:
            most = min(left.degree + right.degree, up_to)
            for degree in range(abs(left.degree - right.degree), most + 1):
                instructions.append((at_x, at_harmonics, len(out)))
                out.append(Irrep(left.multiplicity, degree, left.parity * right.parity))
        return cls(x, harmonics, written(out), instructions)

    @classmethod
    def with_factors(
        cls, x: Any, harmonics: Any, out: Any, instructions: Iterable[Sequence[Any]]
    ) -> "TensorPaths":
        """Return paths without a normalisation: the last entry of an instruction is the path's own factor.

        Coefficients, whose squares add up to 1 for each path, are multiplied by it. In e3nn it is the
        ``path_weight`` of an instruction of a ``TensorProduct`` that was made.

        Args:
            x: The irreps of x.
            harmonics: The irreps of the harmonics, each of multiplicity 1.
            out: The irreps of the output.
            instructions: As for :class:`TensorPaths`, with any finite factor (default 1.0).

        Raises:
            ArgumentError: As for :class:`TensorPaths`.

        Examples:
            >>> import onehop
            >>> onehop.TensorPaths.with_factors("4x1o", "1o", "4x0e", [(0, 0, 0, "uvu", 0.5)]).paths
            (Path(x=0, harmonics=0, out=0, mode='uvu', factor=0.5),)
        """
        self = cls.__new__(cls)
        irreps = parsed("x", x), _singles(harmonics), parsed("out", out)
        self._fill(*irreps, tuple(_checked(*irreps, instruction) for instruction in instructions))
        return self

    def _fill(
        self,
        x: tuple[Irrep, ...],
        harmonics: tuple[Irrep, ...],
        out: tuple[Irrep, ...],
        paths: tuple[Path, ...],
    ) -> None:
        steps = (",".join((*map(str, path[:3]), path.mode, path.factor.hex())) for path in paths)
        shapes = tuple(
            torch.Size((x[path.x].multiplicity, out[path.out].multiplicity)[: 1 if path.mode == "uvu" else 2])
            for path in paths
        )
        fields = {
            "x": x,
            "harmonics": harmonics,
            "out": out,
            "paths": paths,
            "dim_x": dim_of(x),
            "dim_harmonics": dim_of(harmonics),
            "dim_out": dim_of(out),
            "weight_shapes": shapes,
            "weight_numel": sum(shape.numel() for shape in shapes),
            "text": "|".join((written(x), written(harmonics), written(out), ";".join(steps))),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "unmixed", _unmixed(self, spread=False))
        object.__setattr__(self, "spread", _unmixed(self, spread=True))

    def __setattr__(self, name: str, value: object) -> None:
        """Raises, because paths are immutable."""
        raise AttributeError(f"TensorPaths cannot be changed ({name}); make new ones.")

    def __delattr__(self, name: str) -> None:
        """Raises, because paths are immutable."""
        raise AttributeError(f"TensorPaths cannot be changed ({name}); make new ones.")

    def __eq__(self, other: object) -> bool:
        """Return whether the other paths compute the same."""
        return isinstance(other, TensorPaths) and self.text == other.text

    def __hash__(self) -> int:
        """Return a hash of what the paths compute."""
        return hash(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes the same paths again, for copies and files."""
        return of_text, (self.text,)

    def __repr__(self) -> str:
        """Return the irreps and the number of paths."""
        return (
            f"TensorPaths({self.x_irreps!r}, {self.harmonics_irreps!r}, {self.out_irreps!r}, "
            f"{len(self.paths)} paths)"
        )

    @property
    def x_irreps(self) -> str:
        """The irreps of x."""
        return written(self.x)

    @property
    def harmonics_irreps(self) -> str:
        """The irreps of the harmonics."""
        return written(self.harmonics)

    @property
    def out_irreps(self) -> str:
        """The irreps of the output."""
        return written(self.out)


@functools.lru_cache(1024)
def of_text(text: str) -> TensorPaths:
    """Return the paths of a text, ``TensorPaths.text``, which represents them in calls.

    Raises:
        ArgumentError: It is no such text, or no product allows a path.
    """
    try:
        x, harmonics, out, steps = text.split("|")
        instructions = []
        for step in steps.split(";") if steps else ():
            *places, mode, factor = step.split(",")
            instructions.append((*map(int, places), mode, float.fromhex(factor)))
    except ValueError as error:
        raise ArgumentError(f"paths: {text!r} is no text of onehop.TensorPaths ({error}).") from error
    return TensorPaths.with_factors(x, harmonics, out, instructions)


def _singles(harmonics: object) -> tuple[Irrep, ...]:
    """Return the irreps of harmonics.

    Raises:
        ArgumentError: One has another multiplicity than 1.
    """
    irreps = parsed("harmonics", harmonics)
    if any(irrep.multiplicity != 1 for irrep in irreps):
        raise ArgumentError(f"harmonics: expected irreps of multiplicity 1, got {written(irreps)!r}.")
    return irreps


def _unmixed(paths: TensorPaths, spread: bool) -> TensorPaths:
    """Return the paths with "uvu" for each "uvw": each of these has an irrep of its own behind the output's.

    An irrep of the output that no "uvu" path reaches has no channels there.

    Args:
        paths: The paths.
        spread: Whether each of them has an irrep of its own behind those of x, too, and a channel for each
            pair of channels. Else it has the channels of x, and its weights are all 1.
    """
    if all(path.mode == "uvu" for path in paths.paths):
        return paths
    kept = {path.out for path in paths.paths if path.mode == "uvu"}
    x = list(paths.x)
    out = [
        irrep if place in kept else irrep._replace(multiplicity=0) for place, irrep in enumerate(paths.out)
    ]
    alone = []
    for path, shape in zip(paths.paths, paths.weight_shapes, strict=True):
        if path.mode == "uvu":
            alone.append(path)
            continue
        channels = shape.numel() if spread else shape[0]
        alone.append(path._replace(x=len(x) if spread else path.x, out=len(out), mode="uvu"))
        out.append(paths.out[path.out]._replace(multiplicity=channels))
        if spread:
            x.append(paths.x[path.x]._replace(multiplicity=channels))
    return TensorPaths.with_factors(written(x), paths.harmonics_irreps, written(out), alone)


def _checked(
    x: Sequence[Irrep], harmonics: Sequence[Irrep], out: Sequence[Irrep], instruction: Sequence[Any]
) -> Path:
    """Return the path of an instruction, with the instruction's weight as factor.

    Raises:
        ArgumentError: There is no such path.
    """
    if not isinstance(instruction, Sequence) or not 3 <= len(instruction) <= 5:
        raise ArgumentError(
            'instructions: expected tuples (i_x, i_harmonics, i_out), with "uvu" or "uvw" and a weight '
            f"behind them if needed, got {instruction!r}."
        )
    places = instruction[:3]
    mode = instruction[3] if len(instruction) > 3 else "uvu"
    weight = instruction[4] if len(instruction) > 4 else 1.0
    for name, irreps, place in zip(("x", "harmonics", "out"), (x, harmonics, out), places, strict=True):
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(irreps):
            raise ArgumentError(
                f"instructions: {instruction!r} names irrep {place!r} of {name}, which has {len(irreps)}: "
                f"{written(irreps)!r}."
            )
    if mode not in MODES:
        raise ArgumentError(
            f"instructions: expected one of {', '.join(MODES)}, got {mode!r} in {instruction!r}."
        )
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise ArgumentError(f"instructions: expected a finite weight, got {weight!r} in {instruction!r}.")
    left, right, result = x[places[0]], harmonics[places[1]], out[places[2]]
    if not abs(left.degree - right.degree) <= result.degree <= left.degree + right.degree:
        raise ArgumentError(
            f"instructions: no product of {left} and {right} has degree {result.degree}, as {result} of "
            f"{instruction!r} has; degrees go from {abs(left.degree - right.degree)} to "
            f"{left.degree + right.degree}."
        )
    if left.parity * right.parity != result.parity:
        raise ArgumentError(
            f"instructions: a product of {left} and {right} has parity "
            f"{'e' if left.parity == right.parity else 'o'}, and {result} of {instruction!r} has the other."
        )
    if mode == "uvu" and left.multiplicity != result.multiplicity:
        raise ArgumentError(
            f'instructions: "uvu" keeps the channels, but {left} has {left.multiplicity} and {result} of '
            f'{instruction!r} has {result.multiplicity}; "uvw" changes them.'
        )
    return Path(x=places[0], harmonics=places[1], out=places[2], mode=mode, factor=float(weight))


def _normalised(x: Sequence[Irrep], out: Sequence[Irrep], paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths with their factors, from weights as factors.

    As in e3nn's ``TensorProduct``, the square of a factor is the path's weight times the components of the
    output, divided by the number of products that are added up there.
    """
    summed = [0] * len(out)
    for path in paths:
        summed[path.out] += x[path.x].multiplicity if path.mode == "uvw" else 1
    return tuple(
        path._replace(factor=math.sqrt(path.factor * out[path.out].components / max(summed[path.out], 1)))
        for path in paths
    )
