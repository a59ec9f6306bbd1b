"""A program: plain data that says which models, graphs and features there are, and what is done with them.

Everything is a small frozen dataclass whose fields are numbers, words, truth values and tuples of these. So a
program prints as the Python that makes it again, compares by value, and can be made smaller field by field.
"""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any


class Spec:
    """What prints as Python, without the fields that have their default."""

    def __repr__(self) -> str:
        shown = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Graph(Spec):
    """Edges, and what comes with each of them.

    Attributes:
        kind: How the edges are chosen.
        edges: How many, where the kind leaves it open.
        dtype: "int64", or "int32" where they are a plain tensor, CSR or CSC.
        layout: How the [2, E] tensor lies in memory.
        form: The type of the edges: a tensor, an ``EdgeIndex``, a sparse matrix of torch's ("csr", "csc",
            "coo"), or a ``SparseTensor`` of torch_sparse's ("sparse tensor").
        weight: What the weights, or the values of a matrix, are: none, or constant, or in need of a gradient,
            or a view.
        seed: Of the edges, weights and attributes.
    """

    kind: str = "random"
    edges: int = 12
    dtype: str = "int64"
    layout: str = "plain"
    form: str = "tensor"
    weight: str = "none"
    seed: int = 0


@dataclass(frozen=True, repr=False)
class Features(Spec):
    """Node features.

    Attributes:
        values: How the numbers are chosen.
        layout: How they lie in memory.
        grad: Who needs a gradient: nobody, the tensor as a leaf, or something that it is computed from.
        leading: Sizes in front of those of nodes and columns.
        seed: Of the numbers.
    """

    values: str = "normal"
    layout: str = "plain"
    grad: str = "none"
    leading: tuple[int, ...] = ()
    seed: int = 0


@dataclass(frozen=True, repr=False)
class Layer(Spec):
    """One layer.

    Attributes:
        name: Its key in the registry of ``layers.py``.
        options: What its constructor gets beside the widths.
        out: Columns that come out, where the layer lets one choose.
        lazy: Whether the layer finds out at its first call how many columns come in.
    """

    name: str = "GCNConv"
    options: tuple[tuple[str, Any], ...] = ()
    out: int = 3
    lazy: bool = False


@dataclass(frozen=True, repr=False)
class Model(Spec):
    """Layers, one after another.

    Attributes:
        layers: The layers.
        between: What happens between two of them.
        dropout: The probability of dropout between two of them.
        training: Whether it starts in training.
        form: Whether it is a module of the tests or a ``torch_geometric.nn.Sequential``.
        early: Whether it is made before the patch.
    """

    layers: tuple[Layer, ...] = (Layer(),)
    between: str = "elu"
    dropout: float = 0.0
    training: bool = True
    form: str = "stack"
    early: bool = True


@dataclass(frozen=True, repr=False)
class Program(Spec):
    """What there is, and what is done.

    Attributes:
        steps: What is done: steps of ``calls.py``, ``gradients.py``, ``writes.py`` and ``lives.py``.
        models: The models.
        graphs: The graphs, all over the same nodes.
        features: Features of the same nodes.
        nodes: How many nodes.
        width: Columns of the features.
        dtype: Of features and parameters.
        tight: Whether the library acts as if every graph were large.
        full_check: Whether ``ONEHOP_CHECK=full`` is set.
        seed: Of the parameters, and of chance while the program runs.
    """

    steps: tuple[Any, ...]
    models: tuple[Model, ...] = (Model(),)
    graphs: tuple[Graph, ...] = (Graph(),)
    features: tuple[Features, ...] = (Features(),)
    nodes: int = 6
    width: int = 3
    dtype: str = "float64"
    tight: bool = True
    full_check: bool = False
    seed: int = 0

    def listed(self) -> str:
        """The Python that makes it, one part a line."""
        lines = ["Program("]
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                if value != field.default:
                    lines.append(f"    {field.name}=(")
                    lines += [f"        {each!r}," for each in value]
                    lines.append("    ),")
            elif value != field.default:
                lines.append(f"    {field.name}={value!r},")
        return "\n".join([*lines, ")"])


def specs_in(value: Any) -> Iterator[Spec]:
    """Every spec inside a value, itself among them."""
    if isinstance(value, Spec):
        yield value
        for field in fields(value):  # type: ignore[arg-type]
            yield from specs_in(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from specs_in(each)
