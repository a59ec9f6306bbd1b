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
    """Edges, and what comes with each of them."""

    kind: str = "random"  # how the edges are chosen
    edges: int = 12  # how many, where the kind leaves it open
    dtype: str = "int64"  # "int64", or "int32" where they are a plain tensor, CSR or CSC
    layout: str = "plain"  # how the [2, E] tensor lies in memory
    # The type of the edges: a tensor, an ``EdgeIndex``, a sparse matrix of torch's ("csr", "csc", "coo"), or
    # a ``SparseTensor`` of torch_sparse's ("sparse tensor").
    form: str = "tensor"
    # What the weights, or the values of a matrix, are: none, or constant, or in need of a gradient, or a
    # view.
    weight: str = "none"
    seed: int = 0  # of the edges, weights and attributes


@dataclass(frozen=True, repr=False)
class Features(Spec):
    """Node features."""

    values: str = "normal"  # how the numbers are chosen
    layout: str = "plain"  # how they lie in memory
    # Who needs a gradient: nobody, the tensor as a leaf, or something that it is computed from.
    grad: str = "none"
    leading: tuple[int, ...] = ()  # sizes in front of those of nodes and columns
    seed: int = 0  # of the numbers


@dataclass(frozen=True, repr=False)
class Layer(Spec):
    """One layer."""

    name: str = "GCNConv"  # its key in the registry of ``layers.py``
    options: tuple[tuple[str, Any], ...] = ()  # what its constructor gets beside the widths
    out: int = 3  # columns that come out, where the layer lets one choose
    lazy: bool = False  # whether the layer finds out at its first call how many columns come in


@dataclass(frozen=True, repr=False)
class Model(Spec):
    """Layers, one after another."""

    layers: tuple[Layer, ...] = (Layer(),)
    between: str = "elu"  # what happens between two of them
    dropout: float = 0.0  # the probability of dropout between two of them
    training: bool = True  # whether it starts in training
    form: str = "stack"  # whether it is a module of the tests or a ``torch_geometric.nn.Sequential``
    early: bool = True  # whether it is made before the patch


@dataclass(frozen=True, repr=False)
class Program(Spec):
    """What there is, and what is done."""

    # What is done: steps of ``calls.py``, ``gradients.py``, ``writes.py`` and ``lives.py``.
    steps: tuple[Any, ...]
    models: tuple[Model, ...] = (Model(),)
    graphs: tuple[Graph, ...] = (Graph(),)  # the graphs, all over the same nodes
    features: tuple[Features, ...] = (Features(),)  # features of the same nodes
    nodes: int = 6  # how many nodes
    width: int = 3  # columns of the features
    dtype: str = "float64"  # of features and parameters
    tight: bool = True  # whether the library acts as if every graph were large
    full_check: bool = False  # whether ``ONEHOP_CHECK=full`` is set
    seed: int = 0  # of the parameters, and of chance while the program runs

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
