"""Files of tuned plans damaged in every way there is: none stops an aggregation, none changes its result."""

import copy
import json
import logging
import math
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import onehop
from onehop import Graph
from onehop.backends.cpu import CpuBackend
from onehop.plans import CpuPlan, TritonPlan, gpu_tuned, store, tuned
from onehop.plans.cases import gpu_case_of
from onehop.plans.tuned import Tuned

# A plan by which rows are cut in other places than by the default: used or not, results tell.
PLAN = CpuPlan(edges_per_item=7, prefetch=3)
WIDTH = 3
GPU = {"gpu": "A GPU", "triton": "3"}


@pytest.fixture(autouse=True)
def table(own_cache: Path) -> Iterator[None]:
    tuned.forget()
    gpu_tuned.forget()
    yield
    tuned.forget()
    gpu_tuned.forget()


@pytest.fixture
def graph(generator: torch.Generator) -> Graph:
    edge_index = torch.randint(0, 30, (2, 300), generator=generator)
    edge_index[1, :150] = 4
    return Graph.from_edge_index(edge_index, num_nodes=30)


@pytest.fixture
def x(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(30, WIDTH, generator=generator)


def entry(graph: Graph, plan: CpuPlan = PLAN) -> Tuned[CpuPlan]:
    case = tuned.case_of(graph, "sum", False, WIDTH, torch.float32)
    return Tuned(case, plan, 1e-3, 1e-3, 2e-3, ordering_s=1e-3, tried=5)


def written(graph: Graph) -> bytes:
    tuned.install([entry(graph)])
    return store.path().read_bytes()


def later(graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """The sum, in a process that begins now."""
    tuned.forget()
    return onehop.aggregate(graph, x)


def resealed(document: dict[str, Any]) -> bytes:
    """A file whose digest is right, whatever its plans are, as if it were written on purpose."""
    return json.dumps({**document, "digest": store._digest(document["plans"])}).encode()


DEEP = b"[" * 200_000
VALUES = [
    None, True, False, 0, 1, -1, 3, 63, 1 << 31, 1 << 63, -(1 << 63), 10**400, 0.5, math.nan, math.inf,
    -math.inf, 1e308, "", "sum", "int16", "bfloat16", "metis", "a" * 5000, "/etc/passwd", "\ud800", [], {},
    [[]], {"a": {}},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is, in what was read from JSON."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(document: Any, path: tuple[Any, ...], *values: Any) -> Any:
    """A copy with a value in a place; without one, the place is missing."""
    copied = copy.deepcopy(document)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    if values:
        (inner[path[-1]],) = values
    else:
        del inner[path[-1]]
    return copied


def of_bytes(text: bytes, chance: random.Random) -> bytes:
    """Bits flipped, bytes lost, doubled or replaced, the end cut off."""
    kind = chance.randrange(5)
    begin = chance.randrange(len(text))
    end = min(begin + chance.randrange(1, 30), len(text))
    if kind == 0:
        return text[:begin]
    if kind == 1:
        return text[:begin] + text[end:]
    if kind == 2:
        return text[:end] + text[begin:]
    flipped = bytearray(text)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(text))
        flipped[place] = flipped[place] ^ (1 << chance.randrange(8)) if kind == 3 else chance.randrange(256)
    return bytes(flipped)


def test_two_thousand_files_with_damaged_bytes(graph: Graph, x: torch.Tensor) -> None:
    default = onehop.aggregate(graph, x)
    text = written(graph)
    with_plan = later(graph, x)
    assert not torch.equal(with_plan, default)
    chance = random.Random(0)
    logging.disable(logging.WARNING)
    try:
        for _ in range(2000):
            damaged = of_bytes(text, chance)
            store.path().write_bytes(damaged)
            found = later(graph, x)
            # Spaces and the like may have changed; a plan that is used is the one that was written.
            intact = (
                torch.equal(found, with_plan) and json.loads(damaged)["plans"] == json.loads(text)["plans"]
            )
            assert intact or torch.equal(found, default), damaged
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("sealed", [True, False], ids=["digest-right", "digest-wrong"])
def test_every_value_of_a_wrong_kind(graph: Graph, x: torch.Tensor, sealed: bool) -> None:
    """Each field in turn has each of the values, and none at all."""
    exact = onehop.aggregate(graph, x.double())
    document = json.loads(written(graph))
    logging.disable(logging.WARNING)
    try:
        for path in places(document):
            for value in [*((each,) for each in VALUES), ()]:
                other = changed(document, path, *value)
                seal = sealed and isinstance(other, dict) and isinstance(other.get("plans"), list)
                text = resealed(other) if seal else json.dumps(other).encode()
                store.path().write_bytes(text)
                # Whatever plan is left is a legal one: sums differ in their order alone.
                torch.testing.assert_close(later(graph, x).double(), exact, rtol=1e-5, atol=1e-5)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: DEEP,
        lambda text: b'{"a":' * 200_000,
        lambda text: text.replace(b'"prefetch": 3', b'"prefetch": ' + b"[" * 900 + b"]" * 900),
        lambda text: text.replace(b'"width": 3', b'"width": {"3": 3}'),
        lambda text: text.replace(b'"tried": 5', b'"tried": ' + b"9" * 5000),
        lambda text: text.replace(b'"measured_s": 0.001', b'"measured_s": NaN'),
        lambda text: text.decode().encode("cp037"),
        lambda text: text + text,
        lambda text: b"\x1f\x8b" + text,
        lambda text: b"\0" * len(text),
        lambda text: b"",
    ],
    ids=[
        *("deep-lists", "deep-objects", "deep-value", "object-for-a-number", "huge-number", "no-number"),
        *("encoding", "twice", "gzip", "zeros", "empty"),
    ],
)
def test_a_damaged_file_is_set_aside_and_said(
    graph: Graph, x: torch.Tensor, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    default = onehop.aggregate(graph, x)
    store.path().write_bytes(damage(written(graph)))
    with caplog.at_level(logging.WARNING, "onehop"):
        assert torch.equal(later(graph, x), default)
    assert "is damaged" in caplog.text
    assert not store.path().exists()
    tuned.install([entry(graph)])  # and the next one is as good as new
    assert not torch.equal(later(graph, x), default)


@pytest.mark.parametrize(
    ("place", "fields", "message"),
    [
        ("plan", {"column_tile": -1}, "column_tile must be an integer of at least 0, not -1"),
        ("plan", {"edges_per_item": 1 << 63}, "edges_per_item must be at most"),
        ("plan", {"storage": "bfloat16"}, "rounds features to bfloat16, and the user did not allow that"),
        ("plan", {"generated": "../../kernel"}, "generated must be a kernel's name"),
        ("plan", {"threads": {"most": 1}}, "threads must be an integer"),
        ("figures", {"ordering_s": math.inf}, "ordering_s: expected seconds, 0 or more, got inf"),
        ("figures", {"measured_s": math.nan}, "measured_s: expected seconds, 0 or more, got nan"),
        ("figures", {"default_s": "long"}, "default_s: expected seconds, 0 or more, got 'long'"),
        ("figures", {"predicted_s": -1.0}, "predicted_s: expected seconds, 0 or more, got -1.0"),
        ("figures", {"quartiles": [1.0, 2.0]}, r"expected three ratios or none, got \[1.0, 2.0\]"),
        ("figures", {"quartiles": [1.0, math.inf, 2.0]}, "quartiles: expected three ratios"),
        ("figures", {"tried": 1.5}, "tried: expected int, got float"),
        ("figures", {"finished": 1}, "finished: expected bool, got int"),
    ],
)
def test_what_cannot_be_in_an_intact_file_is_set_aside(
    graph: Graph,
    x: torch.Tensor,
    caplog: pytest.LogCaptureFixture,
    place: str,
    fields: dict[str, Any],
    message: str,
) -> None:
    default = onehop.aggregate(graph, x)
    # Calls count what an order has earned by the figures.
    tuned.install([entry(graph, CpuPlan(edges_per_item=7, prefetch=3, ordering="degree"))])
    document = json.loads(store.path().read_bytes())
    (stored,) = document["plans"]
    (stored if place == "figures" else stored["plan"]).update(fields)
    store.path().write_bytes(resealed(document))
    with caplog.at_level(logging.WARNING, "onehop"):
        assert torch.equal(later(graph, x), default)
    assert re.search(message, caplog.text)
    assert not store.path().exists()


def test_what_is_no_file_is_said_and_not_waited_for(
    graph: Graph, x: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    default = onehop.aggregate(graph, x)
    file = store.path()
    file.parent.mkdir(parents=True)
    for make in (file.mkdir, lambda: os.mkfifo(file), lambda: file.symlink_to("/dev/zero"), unreadable):
        make()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "onehop"):
            assert torch.equal(later(graph, x), default)
        assert "cannot be read" in caplog.text
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()


def unreadable() -> None:
    """A file that no user may read, root included: a link to itself."""
    store.path().symlink_to(store.path())


def test_a_file_too_large_to_be_ours_is_not_read(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    written(graph)
    os.truncate(store.path(), 1 << 40)
    with caplog.at_level(logging.WARNING, "onehop"):
        tuned.forget()
        assert CpuBackend().plan_of_sum(graph, False, WIDTH, torch.float32) != PLAN
    assert "has 1099511627776 bytes" in caplog.text


def test_plans_of_gpus_too(graph: Graph) -> None:
    case = gpu_case_of(graph, "sum", False, WIDTH, 1, torch.float32, GPU["gpu"])
    gpu_tuned.install([Tuned(case, TritonPlan(split_edges=7), None, 1e-3, 2e-3)], GPU)
    document = json.loads(store.path(GPU).read_bytes())

    def found() -> TritonPlan | None:
        gpu_tuned.forget()
        hit = gpu_tuned.find(graph, "sum", False, WIDTH, 1, torch.float32, GPU)
        return None if hit is None else hit[0]

    assert found() == TritonPlan(split_edges=7)
    logging.disable(logging.WARNING)
    try:
        for path in places(document["plans"]):
            for value in VALUES:
                store.path(GPU).write_bytes(
                    resealed({**document, "plans": changed(document["plans"], path, value)})
                )
                plan = found()
                assert plan is None or TritonPlan.from_dict(plan.to_dict()) == plan
    finally:
        logging.disable(logging.NOTSET)
