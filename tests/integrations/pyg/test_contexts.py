"""Every layer in every context, over every kind of edges: PyG's results without the patch, or its error."""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex

import onehop
from onehop import thresholds
from onehop.integrations import reports
from onehop.integrations.pyg.leave import FITS_CACHE, TOO_SMALL
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.adjacencies import LAYOUTS, WARNINGS, entries, matrix
from tests.integrations.pyg.contexts import CONTEXTS, DTYPES, JUDGES, Operands, gradients
from tests.integrations.pyg.layers import LAYERS, NODES, Case, case_call, operands_of
from tests.pairs import rounds, spread

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]


# Where PyG meets limits of torch, the patch may go further, or meet another: caches of EdgeIndex, products
# without second derivatives, batches of sparse matrices, writes to what only PyG keeps.
LIMITS = ("inference_mode", "second derivatives", "batch, older", "batch, newer", "activation in place")
# Where PyG's code runs, all the time or some of it, because torch transforms it.
TRANSFORMED = ("functional_call", "forward mode", "vmap")
TRANSFORM = "a functorch transform (vmap, grad, jvp) is at work"


def sorted_index(edge_index: Tensor) -> Tensor:
    return EdgeIndex(
        edge_index[:, edge_index[1].argsort(stable=True)], sparse_size=(NODES, NODES), sort_order="col"
    )


DENSE: dict[str, Callable[[Tensor], Tensor]] = {
    "edge_index": lambda edge_index: edge_index,
    "transposed memory": lambda edge_index: edge_index.t().contiguous().t(),
    "EdgeIndex": lambda edge_index: EdgeIndex(edge_index, sparse_size=(NODES, NODES)),
    "EdgeIndex, sorted": sorted_index,
}
# Sparse matrices, also with values that want a gradient.
KINDS = [*DENSE, *LAYOUTS, *(f"{layout}, learned" for layout in LAYOUTS)]
GRAPHS: dict[str, Callable[[Tensor], Tensor]] = {
    "multi-edges, loops, an isolated node": lambda edge_index: edge_index,
    "a hub": lambda edge_index: torch.stack([edge_index[0], edge_index[1].clamp(max=1)]),
    "one edge": lambda edge_index: edge_index[:, :1],
    "no edges": lambda edge_index: edge_index[:, :0],
}
BOUNDS = ("small graphs too", "as users have them", "none", "blocks", "compiled messages")
# Why PyG's code runs on ordinary edges.
REFUSALS = {"small graphs too": {FITS_CACHE}, "as users have them": {FITS_CACHE, TOO_SMALL}}


def over(kind: str, case: Case, edge_index: Tensor, operands: Operands) -> Callable[..., Tensor]:
    """How a layer is called with edges of a kind; operands of edges are cut to fit."""
    layout, _, learned = kind.partition(", ")
    if kind in DENSE:
        call, count = case_call(case, DENSE[kind](edge_index)), edge_index.size(1)
    else:
        at = entries(edge_index)
        count = at.size(1)
        generator = torch.Generator().manual_seed(5)
        values = torch.rand(count, generator=generator, dtype=torch.float64) + 0.1
        operands.pop("edge_weight", None)
        if learned:
            operands["values"] = values

        def call(model: Any, *, values: Tensor = values, **operands: Tensor) -> Tensor:
            edges = matrix(layout, at, values.to(operands["x"].dtype))
            return case_call(case, edges)(model, **operands)

    for name in ("edge_weight", "edge_attr"):
        if name in operands:
            operands[name] = operands[name][:count]
    return call


class Error(NamedTuple):
    """What was raised, less what torch tells of the tensors that it kept."""

    kind: type
    words: str


def flat(found: Any) -> list[Tensor | None]:
    """The tensors of a result."""
    if isinstance(found, dict):
        return list(found.values())
    return found if isinstance(found, list) else [found]


def assert_same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-9, atol=1e-10, equal_nan=True)


def assert_as_good(found: Any, expected: Any, exact: Any, rounding: float) -> None:
    """Errors are not much larger than PyG's own, and dtypes are PyG's."""
    largest = max(
        float(each.nan_to_num().abs().max()) for each in flat(exact) if each is not None and each.numel()
    )
    for ours, theirs, true in zip(*map(flat, (found, expected, exact)), strict=True):
        if theirs is None or not theirs.numel():
            assert (ours is None) == (theirs is None)
            continue
        assert ours.dtype is theirs.dtype
        own, error = ((each.double() - true.double()).nan_to_num().abs().max() for each in (theirs, ours))
        assert error <= 3 * own + rounding * largest


# The forms of one layer, which differ in options, share the contexts and the kinds of edges: each of these
# has a third of the forms, in turn. Where all forms run, it has all.
_SHARES = 3 if rounds() == 1 else 1


def shared(values: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every form of a layer with its share of values."""
    families = defaultdict(list)
    for name in LAYERS:
        families[name.partition(" ")[0]].append(name)
    for forms in families.values():
        shares = min(len(forms), _SHARES)
        for number, name in enumerate(forms):
            own = (value for place, value in enumerate(values) if place % shares == number % shares)
            yield from ((name, value) for value in own)


# Every context on ordinary edges, and every kind of edges with gradients. Few faults need more: the rest of
# the product is drawn.
ORDINARY = next(iter(GRAPHS))
IN_CONTEXTS = [(name, context, "edge_index", ORDINARY) for name, context in shared(CONTEXTS)]
OVER_KINDS = [(name, "gradients", kind, ORDINARY) for name, kind in shared(KINDS[1:])]
DRAWN = [(name,) for name in LAYERS for _ in range(6 * rounds())]
FORMS = [
    *spread(IN_CONTEXTS, BOUNDS),
    *spread(OVER_KINDS, BOUNDS),
    *spread(DRAWN, list(CONTEXTS), KINDS, list(GRAPHS), BOUNDS),
]


def compare(
    made: torch.nn.Module,
    call: Callable[..., Tensor],
    operands: Operands,
    context: str,
    bounds: str,
    monkeypatch: pytest.MonkeyPatch,
) -> list[reports.Call]:
    """A layer gives in a context what it gives without the patch, or raises the same.

    Returns how its propagations went, or nothing where it raises.
    """
    if bounds == "none":
        monkeypatch.setattr(thresholds, "now", thresholds.NONE)
    elif bounds == "as users have them":
        monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    elif bounds != "small graphs too":
        small_blocks.force(monkeypatch, compiled=bounds == "compiled messages")
    dtype = DTYPES.get(context, torch.float64)
    # Dropout of other dtypes draws other numbers.
    made = made.eval() if context in DTYPES else made

    def result(run: Callable[..., Any], dtype: torch.dtype = dtype) -> Any:
        torch.manual_seed(3)
        given = {each: tensor.to(dtype) for each, tensor in operands.items()}
        try:
            return run(copy.deepcopy(made).to(dtype), call, given)
        except Exception as error:  # what PyG raises is compared
            return Error(type(error), str(error).partition("\n")[0].partition("[torch.")[0])

    rounding = 4 * torch.finfo(torch.bfloat16 if context == "autocast" else dtype).eps
    theirs = result(CONTEXTS[context])
    expected = result(JUDGES[context]) if context in JUDGES else theirs
    exact = result(gradients, torch.float64) if context in DTYPES else None
    if isinstance(exact, Error):  # PyG makes numbers of the default dtype somewhere
        exact = expected
    with onehop.patch(), reports.recorded() as calls:
        for _ in range(2):
            found = result(CONTEXTS[context])
            if isinstance(expected, Error) or isinstance(found, Error):
                assert found == theirs or (context in LIMITS and isinstance(theirs, Error))
            elif context in DTYPES:
                assert_as_good(found, expected, exact, rounding)
            else:
                assert_same(found, expected)
    return [] if isinstance(found, Error) else calls


@pytest.mark.parametrize(("name", "context", "kind", "graph", "bounds"), FORMS)
# Torch's own notes of missing batching rules.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_the_patch_changes_nothing(name, context, kind, graph, bounds, edge_index, monkeypatch):
    case = LAYERS[name]
    torch.manual_seed(0)
    made = case.make()
    operands = operands_of(case, torch.float64)
    call = over(kind, case, GRAPHS[graph](edge_index), operands)
    calls = compare(made, call, operands, context, bounds, monkeypatch)
    if kind == "edge_index" and graph != "no edges":
        reasons = {each.reason for each in calls}
        if context in TRANSFORMED:
            assert TRANSFORM in reasons or not calls
            assert context == "functional_call" or len(reasons) <= 1
        else:
            assert reasons <= {None} | REFUSALS.get(bounds, set())
