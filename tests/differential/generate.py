"""A program for every seed."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.differential import calls, gradients, lives, writes
from tests.differential.layers import KINDS
from tests.differential.program import Features, Graph, Layer, Model, Program
from tests.differential.tensors import HAS_SPARSE_TENSORS, SPARSE_TENSOR

_GRAPHS = (
    "random", "random", "both ways", "sorted", "few targets", "repeated", "star", "out-star", "loops",
    "path", "none",
)  # fmt: skip
_EDGE_LAYOUTS = (
    "plain", "plain", "plain", "transposed", "slice", "every second", "of a stack", "view of a view",
)  # fmt: skip
_WEIGHTS = (
    "none", "plain", "plain", "leaf", "parameter", "computed", "view", "strided", "expanded", "column",
    "float32",
)  # fmt: skip
_LAYOUTS = ("plain", "plain", "plain", "plain", "transposed", "rows", "columns", "view of a view", "expanded")
_VALUES = ("normal", "normal", "normal", "positive", "few", "sparse", "not a number", "infinite")
# Layers that most models are made of come more often.
_BETWEEN = ("relu", "relu", "relu in place", "elu", "plus one", "none")
_COMMON = (
    "GCNConv", "SAGEConv", "GraphConv", "GINConv", "GATConv", "GATv2Conv", "TransformerConv", "SGConv",
    "TAGConv", "SimpleConv", "LGConv", "Plain", "Unannotated", "Executed", "Manufactured",
)  # fmt: skip
_CONTEXTS = (
    "no grad", "inference", "inference", "grad", "autocast", "device cpu", "device meta",
    "default device meta", "default dtype", "dispatch mode", "function mode", "saved on cpu",
    "saved copies", "anomaly", "forked generator", "no multithreading",
)  # fmt: skip


class Chooser:
    """Chance that is the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        # Model, graph, features, and whether weighted: what a program comes back to, as training does.
        self._favourite = self._any()

    def target(self) -> tuple[int, int, int, bool]:
        """What is called: a model, a graph, features, and whether with weights."""
        return self._favourite if self.happens(0.7) else self._any()

    def _any(self) -> tuple[int, int, int, bool]:
        return self.below(2), int(self.happens(0.3)), int(self.happens(0.3)), self.happens(0.5)

    def of(self, values: Sequence[Any]) -> Any:
        """One of these."""
        return values[self._random.randrange(len(values))]

    def happens(self, share: float) -> bool:
        """True in this share of the cases."""
        return self._random.random() < share

    def below(self, end: int) -> int:
        """A whole number from 0 on."""
        return self._random.randrange(end)

    def weighted(self, table: Sequence[tuple[float, Any]]) -> Any:
        """One of the second entries, as often as the first say."""
        return self._random.choices([each for _, each in table], [share for share, _ in table])[0]


def generate(seed: int) -> Program:
    """The program of a seed."""
    choose = Chooser(seed)
    dtype = choose.weighted([(0.72, "float64"), (0.16, "float32"), (0.06, "bfloat16"), (0.06, "float16")])
    nodes = choose.weighted([(0.03, 0), (0.05, 1), (0.1, 2), (0.3, 6), (0.3, 13), (0.22, 40)])
    features = tuple(_features(choose, seed) for _ in range(1 + choose.happens(0.4)))
    graphs = tuple(_graph(choose, nodes, seed) for _ in range(1 + choose.happens(0.35)))
    # Whole numbers cancel to 0 or to nearly 0, as rounding will, and there relu's gradient jumps.
    smooth = any(each.values == "few" for each in features)
    models = tuple(_model(choose, smooth) for _ in range(1 + choose.happens(0.3)))
    full_check = choose.happens(0.08)
    narrow = any(graph.dtype == "int32" for graph in graphs)
    steps = tuple(_fitting(choose, step, models, narrow) for step in _steps(choose, models, full_check))
    if narrow:
        # torch 2.13 differentiates scatter_add wrongly with such indices.
        steps = tuple(step for step in steps if not isinstance(step, _DIFFERENTIATING))
    return Program(
        steps=steps,
        models=models,
        graphs=graphs,
        features=features,
        nodes=nodes,
        width=choose.of((1, 2, 3, 5, 8)),
        dtype=dtype,
        tight=choose.happens(0.5),
        full_check=full_check,
        seed=seed,
    )


def _fitting(choose: Chooser, step: Any, models: tuple[Model, ...], narrow: bool) -> Any:
    """The step, without most of what PyG would refuse."""
    if not isinstance(step, calls.Call):
        return step
    layers = models[step.model % len(models)].layers
    kind = KINDS[layers[0].name]
    # Without the patch, edges of 32 bits are replaced by others, which would come out with the attention.
    if step.attention and (narrow or len(layers) > 1 or not kind.attention):
        step = dataclasses.replace(step, attention=False)
    if step.pair and not kind.pair and choose.happens(0.9):
        step = dataclasses.replace(step, pair=0)
    return step


def _features(choose: Chooser, seed: int) -> Features:
    constant = choose.happens(0.55)
    return Features(
        values=choose.of(_VALUES),
        layout=choose.of(_LAYOUTS) if choose.happens(0.6) else "plain",
        grad="none" if constant else choose.of(("leaf", "leaf", "computed", "parameter")),
        leading=choose.of(((2,), (2, 3), (1,))) if choose.happens(0.06) else (),
        seed=choose.below(1000),
    )


# Numbers of edges; the second row is one below, at and above the bounds of few edges.
_EDGES = (
    (0.9, (1, 5, 12, 12, 40, 120)),
    (0.1, (511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097)),
)


def _graph(choose: Chooser, nodes: int, seed: int) -> Graph:
    kind = choose.of(_GRAPHS) if nodes else "none"
    return Graph(
        kind=kind,
        edges=choose.of(choose.weighted(_EDGES)),
        dtype="int32" if choose.happens(0.03) else "int64",
        layout=choose.of(_EDGE_LAYOUTS),
        form=choose.weighted(
            [
                (0.8, "tensor"),
                (0.06, "EdgeIndex"),
                (0.08, "csr"),
                (0.02, "csc"),
                (0.04, "coo"),
                (0.08 * HAS_SPARSE_TENSORS, SPARSE_TENSOR),
            ]
        ),
        weight=choose.of(_WEIGHTS),
        seed=choose.below(1000),
    )


def _model(choose: Chooser, smooth: bool) -> Model:
    count = choose.weighted([(0.55, 1), (0.35, 2), (0.1, 3)])
    return Model(
        layers=tuple(_layer(choose) for _ in range(count)),
        between=choose.of(("elu", "plus one", "none") if smooth else _BETWEEN),
        dropout=choose.of((0.0, 0.0, 0.5)),
        training=choose.happens(0.7),
        form="sequential" if not smooth and choose.happens(0.1) else "stack",
        early=choose.happens(0.5),
    )


def _layer(choose: Chooser) -> Layer:
    name = choose.of(_COMMON) if choose.happens(0.6) else choose.of(tuple(KINDS))
    kind = KINDS[name]
    options = {}
    for key, values in kind.choices.items():
        if choose.happens(0.35):
            options[key] = choose.of(values)
    if options.get("normalize") is False and "add_self_loops" in kind.choices:
        options["add_self_loops"] = False  # PyG refuses the pair
    return Layer(
        name, tuple(sorted(options.items())), out=choose.of((1, 2, 3, 5, 8)), lazy=choose.happens(0.08)
    )


def _steps(choose: Chooser, models: tuple[Model, ...], full_check: bool) -> tuple[Any, ...]:
    count = choose.weighted([(0.3, 4), (0.4, 7), (0.3, 11)])
    makers = _MAKERS
    # Two or three idioms a program, not all of them: what one of them breaks is easier to see.
    chosen = [makers[0], makers[1]] + [
        choose.weighted([(share, (share, maker)) for share, maker in makers]) for _ in range(4)
    ]
    steps: list[Any] = []
    while len(steps) < count:
        made = choose.weighted(chosen)(choose)
        for step in made if isinstance(made, tuple) else (made,):
            hidden = isinstance(step, writes.WriteEdges) and step.how in writes.HIDDEN_EDGE_WRITES
            if not hidden or full_check:
                steps.append(step)
    return tuple(steps)


def _call(choose: Chooser) -> calls.Call:
    return calls.Call(
        *choose.target(),
        context=choose.of(_CONTEXTS) if choose.happens(0.25) else "plain",
        pair=choose.of((1, 2, 3)) if choose.happens(0.2) else 0,
        times=choose.of((1, 1, 2, 3, 4)),
        attention=choose.happens(0.25),
    )


def _mostly_0(choose: Chooser) -> int:
    return int(choose.happens(0.3))


def _checkpoint(choose: Chooser) -> Any:
    return calls.Checkpoint(*choose.target(), choose.happens(0.3), choose.of((1, 1, 2, 3)))


def _threads(choose: Chooser) -> Any:
    return calls.Threads(*choose.target()[:3], count=choose.of((1, 1, 3)))


def _transform(choose: Chooser) -> Any:
    name = choose.of(tuple(calls.TRANSFORMS))
    return calls.Transform(*choose.target(), name, choose.of((0, 0, 2)))


def _backward(choose: Chooser) -> Any:
    return gradients.Backward(
        choose.of((0, 0, 0, 1, 2)),
        choose.of(("plain", "plain", "expanded", "transposed", "columns")),
        choose.happens(0.4),
        choose.of((1, 1, 1, 2)),
        choose.below(100),
    )


def _gradient(choose: Chooser) -> Any:
    return gradients.Gradient(
        choose.of((0, 0, 1)),
        choose.of(("once", "batched", "twice")),
        choose.of(("plain", "plain", "expanded", "columns")),
        choose.below(100),
    )


def _train(choose: Chooser) -> Any:
    call = calls.Call(*choose.target())
    return gradients.Train(
        call,
        choose.of((1, 2, 4)),
        choose.of((1, 1, 3)),
        choose.happens(0.6),
        choose.happens(0.3),
        choose.happens(0.3),
    )


_DIFFERENTIATING = (gradients.Backward, gradients.Gradient, gradients.Train, calls.Transform)
_ALL_WRITES = (*writes.WRITES, *writes.PROPERTIES)


def _write_output(choose: Chooser) -> Any:
    return writes.WriteOutput(choose.of((0, 0, 1, 2)), choose.of(_ALL_WRITES))


def _write_features(choose: Chooser) -> Any:
    return writes.WriteFeatures(_mostly_0(choose), choose.of(_ALL_WRITES), choose.happens(0.3))


def _write_weights(choose: Chooser) -> Any:
    return writes.WriteWeights(_mostly_0(choose), choose.of(_ALL_WRITES), choose.happens(0.3))


def _write_edges(choose: Chooser) -> Any:
    return writes.WriteEdges(
        _mostly_0(choose),
        choose.of((*writes.EDGE_WRITES, *writes.HIDDEN_EDGE_WRITES)),
        choose.of(tuple(writes.MATRIX_WRITES)),
    )


def _write_parameters(choose: Chooser) -> Any:
    return writes.WriteParameters(choose.below(2), choose.of(tuple(writes.WRITES)), choose.of((None, 0, 1)))


def _differentiated(choose: Chooser) -> tuple[Any, ...]:
    """A call, and the gradient of what it gave out."""
    make = choose.of((_call, _call, _checkpoint))
    return make(choose), choose.of((_backward, _gradient))(choose)


def _called_again(choose: Chooser) -> tuple[Any, ...]:
    """The same call before and after something is written."""
    call = calls.Call(*choose.target(), times=choose.of((2, 3, 4)))
    write = choose.of(
        (_write_output, _write_features, _write_weights, _write_edges, _write_parameters, _copy)
    )
    return call, write(choose), dataclasses.replace(call, times=choose.of((1, 2)))


def _alter(choose: Chooser) -> Any:
    return lives.Alter(choose.below(2), choose.of(tuple(lives.ALTERATIONS)))


def _altered(choose: Chooser) -> tuple[Any, ...]:
    """The same call again and again, with a model that changes in between."""
    call = calls.Call(*choose.target(), times=2)
    steps: list[Any] = [call]
    for _ in range(choose.of((1, 2, 3))):
        change = lives.Change(call.model, choose.of(("train", "eval", "freeze", "unfreeze", "deepcopy")))
        alter = dataclasses.replace(_alter(choose), model=call.model)
        steps += [choose.of((alter, alter, change)), call]
        if choose.happens(0.4):
            steps.append(_backward(choose))
    return tuple(steps)


def _copy(choose: Chooser) -> Any:
    return writes.CopyFeatures(_mostly_0(choose), choose.below(100), choose.happens(0.4))


# How often, and what makes the step.
_MAKERS: tuple[tuple[float, Callable[[Chooser], Any]], ...] = (
    (5.0, _call),
    (3.0, _differentiated),
    (2.0, _backward),
    (2.5, _called_again),
    (2.0, _gradient),
    (1.5, _checkpoint),
    (0.8, _threads),
    (1.5, _transform),
    (1.2, _train),
    (2.5, _write_output),
    (2.0, _write_features),
    (1.5, _write_weights),
    (1.2, _write_edges),
    (1.0, _write_parameters),
    (1.0, _copy),
    (1.5, _altered),
    (0.5, _alter),
    (1.0, lambda choose: lives.NewFeatures(_mostly_0(choose), choose.below(100))),
    (1.0, lambda choose: lives.NewEdges(_mostly_0(choose), choose.below(100))),
    (0.6, lambda choose: lives.Free(choose.happens(0.6), choose.happens(0.2))),
    (1.5, lambda choose: lives.Change(choose.below(2), choose.of(tuple(lives.CHANGES)))),
    (0.4, lambda choose: lives.ResetCaches(choose.below(2))),
    (1.0, lambda choose: lives.Hook(choose.below(2), choose.of(tuple(lives.HOOKS)))),
    (0.3, lambda choose: lives.Unhook()),
    (1.2, lambda choose: lives.Patching(choose.of(tuple(lives.PATCHES)))),
    (0.3, lambda choose: lives.Seed(choose.below(100))),
    (0.4, lambda choose: lives.ThreadCount(choose.of((1, 2)))),
)
