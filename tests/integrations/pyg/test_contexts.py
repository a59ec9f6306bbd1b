"""Every layer in every context, over every kind of edges: PyG's results without the patch, or its error."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric import EdgeIndex

import onehop
from onehop import thresholds
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.adjacencies import LAYOUTS, WARNINGS, entries, matrix
from tests.integrations.pyg.layers import CASES, IN_BLOCKS, NODES, case_call, operands_of
from tests.pairs import rounds, spread

Model = torch.nn.Module
Operands = dict[str, Tensor]
LAYERS = CASES | IN_BLOCKS

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]


def leaves_of(model: Model, operands: Operands) -> tuple[Operands, Operands]:
    """Fresh operands, and everything by name that may have a gradient."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in operands.items()}
    return leaves, leaves | {name: each for name, each in model.named_parameters() if each.requires_grad}


def pulled(out: Tensor, *batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(*batch, *out.shape, generator=generator, dtype=torch.float64).to(out.dtype)


def gradients(model: Model, call: Any, operands: Operands) -> dict[str, Tensor | None]:
    leaves, named = leaves_of(model, operands)
    out = call(model, **leaves)
    found = torch.autograd.grad(out, list(named.values()), pulled(out), allow_unused=True)
    return {"output": out.detach(), **dict(zip(named, found, strict=True))}


def second_derivatives(model: Model, call: Any, operands: Operands) -> list[Tensor]:
    leaves, named = leaves_of(model, operands)
    out = call(model, **leaves).tanh().sum()
    first = torch.autograd.grad(out, list(named.values()), create_graph=True, materialize_grads=True)
    total = sum(grad.square().sum() for grad in first)
    if not total.requires_grad:
        return list(first)
    return [*first, *torch.autograd.grad(total, list(named.values()), materialize_grads=True)]


def batch(way: str, model: Model, call: Any, operands: Operands) -> list[Tensor | None]:
    """A batch of gradients, in one of torch's ways."""
    leaves, named = leaves_of(model, operands)
    out = call(model, **leaves)
    wanted, each = list(named.values()), pulled(out, 3)
    if way == "older":
        return list(torch.autograd.grad(out, wanted, each, is_grads_batched=True, allow_unused=True))
    grad = partial(torch.autograd.grad, out, retain_graph=True, allow_unused=True)
    members = [grad(wanted, one) for one in each]
    stacked = [None if parts[0] is None else torch.stack(parts) for parts in zip(*members, strict=True)]
    if way == "newer":
        used = [leaf for leaf, part in zip(wanted, stacked, strict=True) if part is not None]
        rest = iter(torch.vmap(lambda one: torch.autograd.grad(out, used, one, retain_graph=True))(each))
        return [None if part is None else next(rest) for part in stacked]
    return stacked


def without_gradients(mode: Any, model: Model, call: Any, operands: Operands) -> Tensor:
    with mode():
        return call(model, **operands)


def training(model: Model, call: Any, operands: Operands) -> list[Tensor]:
    """Steps of an optimiser, on features that need no gradient and are the same every time."""
    model = copy.deepcopy(model)
    found = []
    for _ in range(4):
        out = call(model, **operands)
        found.append(out.detach())
        if out.requires_grad:
            model.zero_grad()
            out.square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.1 * parameter.grad
    return [*found, *(parameter.detach() for parameter in model.parameters())]


def frozen(model: Model, call: Any, operands: Operands) -> dict[str, Tensor | None]:
    return gradients(copy.deepcopy(model).requires_grad_(False), call, operands)


def evaluated(model: Model, call: Any, operands: Operands) -> dict[str, Tensor | None]:
    return gradients(copy.deepcopy(model).eval(), call, operands)


def checkpointed(reentrant: bool, model: Model, call: Any, operands: Operands) -> dict[str, Tensor | None]:
    model = copy.deepcopy(model)
    leaves, named = leaves_of(model, operands)

    def run(*given: Tensor) -> Tensor:
        return call(model, **dict(zip(leaves, given, strict=True)))

    out = checkpoint(run, *leaves.values(), use_reentrant=reentrant)
    out.backward(pulled(out))
    return {name: leaf.grad for name, leaf in named.items()}


def saved_on_cpu(model: Model, call: Any, operands: Operands) -> dict[str, Tensor | None]:
    with torch.autograd.graph.save_on_cpu():
        return gradients(model, call, operands)


def copied(how: Callable[[Model], Model], model: Model, call: Any, operands: Operands) -> Any:
    """A copy of a model in use, and the model itself."""
    call(model, **operands)
    return {"copy": gradients(how(model), call, operands)["output"], **gradients(model, call, operands)}


def functional(model: Model, call: Any, operands: Operands) -> dict[str, Tensor]:
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters: Operands, x: Tensor) -> Tensor:
        inner = lambda *args: torch.func.functional_call(model, parameters, args)  # noqa: E731
        return call(inner, **operands | {"x": x}).square().sum()

    of_parameters, of_x = torch.func.grad(loss, argnums=(0, 1))(parameters, operands["x"])
    return of_parameters | {"x": of_x}


def forward_mode(model: Model, call: Any, operands: Operands) -> list[Tensor]:
    function = lambda x: call(model, **operands | {"x": x})  # noqa: E731
    return list(torch.func.jvp(function, (operands["x"],), (torch.ones_like(operands["x"]),)))


def over_batch(model: Model, call: Any, operands: Operands) -> Tensor:
    x = operands["x"]
    function = lambda x: call(model, **operands | {"x": x})  # noqa: E731
    return torch.vmap(function, randomness="same")(torch.stack([x, 2 * x, x - 1]))


def strided(model: Model, call: Any, operands: Operands) -> dict[str, Tensor | None]:
    return gradients(model, call, {name: torch.stack([t, t], -1)[..., 0] for name, t in operands.items()})


def written_to(model: Model, call: Any, operands: Operands) -> list[Tensor]:
    """What a caller does to a result is of no consequence to the next."""
    found = []
    for write in (
        lambda out: out.relu_(),
        lambda out: out[3:, 1:].fill_(7),
        lambda out: out.numpy().__imul__(3),
    ):
        with torch.no_grad():
            kept, out = call(model, **operands), call(model, **operands)
        write(out)
        found += [kept, out]
    return found


def in_place(model: Model, call: Any, operands: Operands) -> dict[str, Tensor | None]:
    return gradients(model, lambda model, **leaves: torch.relu_(call(model, **leaves)), operands)


def autocast(model: Model, call: Any, operands: Operands) -> dict[str, Tensor | None]:
    def lowered(model: Model, **leaves: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return call(model, **leaves)

    return gradients(model, lowered, operands)


CONTEXTS: dict[str, Callable[..., Any]] = {
    "gradients": gradients,
    "second derivatives": second_derivatives,
    "batch, older": partial(batch, "older"),
    "batch, newer": partial(batch, "newer"),
    "no_grad": partial(without_gradients, torch.no_grad),
    "inference_mode": partial(without_gradients, torch.inference_mode),
    "training": training,
    "frozen": frozen,
    "eval": evaluated,
    "checkpoint": partial(checkpointed, False),
    "checkpoint, reentrant": partial(checkpointed, True),
    "saved on cpu": saved_on_cpu,
    "deepcopy": partial(copied, copy.deepcopy),
    "pickle": partial(copied, lambda model: pickle.loads(pickle.dumps(model))),
    "functional_call": functional,
    "forward mode": forward_mode,
    "vmap": over_batch,
    "strided features": strided,
    "writes to results": written_to,
    "activation in place": in_place,
    "float32": gradients,
    "bfloat16": gradients,
    "float16": gradients,
    "autocast": autocast,
}
# Gradients of a batch are judged by PyG's one by one.
JUDGES = {"batch, older": partial(batch, "one by one"), "batch, newer": partial(batch, "one by one")}
# Contexts whose numbers have few digits, and the dtype of the operands: errors are about those of PyG.
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "autocast": torch.float32,
}
# Where PyG raises errors that the patch need not: caches of EdgeIndex, products without second derivatives.
FURTHER = ("inference_mode", "second derivatives")


def sorted_index(edge_index: Tensor) -> Tensor:
    return EdgeIndex(
        edge_index[:, edge_index[1].argsort(stable=True)], sparse_size=(NODES, NODES), sort_order="col"
    )


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "edge_index": lambda edge_index: edge_index,
    "transposed memory": lambda edge_index: edge_index.t().contiguous().t(),
    "EdgeIndex": lambda edge_index: EdgeIndex(edge_index, sparse_size=(NODES, NODES)),
    "EdgeIndex, sorted": sorted_index,
    **dict.fromkeys(LAYOUTS),
}
GRAPHS: dict[str, Callable[[Tensor], Tensor]] = {
    "multi-edges, loops, an isolated node": lambda edge_index: edge_index,
    "a hub": lambda edge_index: torch.stack([edge_index[0], edge_index[1].clamp(max=1)]),
    "one edge": lambda edge_index: edge_index[:, :1],
    "no edges": lambda edge_index: edge_index[:, :0],
}
BOUNDS = ("small graphs too", "none", "blocks", "compiled messages")


def over(kind: str, edge_index: Tensor, operands: Operands) -> Any:
    """The edges in their kind; operands of edges are cut to fit."""
    if kind not in LAYOUTS:
        edges, count = KINDS[kind](edge_index), edge_index.size(1)
    else:
        at = entries(edge_index)
        count = at.size(1)
        generator = torch.Generator().manual_seed(5)
        values = torch.rand(count, generator=generator, dtype=torch.float64) + 0.1
        edges = matrix(kind, at, values.to(operands["x"].dtype))
        operands.pop("edge_weight", None)
    for name in ("edge_weight", "edge_attr"):
        if name in operands:
            operands[name] = operands[name][:count]
    return edges


class Error(NamedTuple):
    """What was raised; torch's sentence of a write goes on with the operation that kept the tensor."""

    kind: type
    words: str


def flat(found: Any) -> list[Tensor | None]:
    """The tensors of a result."""
    if isinstance(found, dict):
        return list(found.values())
    return found if isinstance(found, list) else [found]


def assert_same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-9, atol=1e-10, equal_nan=True)


def assert_as_good(found: Any, expected: Any, exact: Any) -> None:
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
        assert error <= 3 * own + 8 * torch.finfo(ours.dtype).eps * largest


ROWS = [(name, context) for name in LAYERS for context in CONTEXTS] * rounds()
FORMS = list(spread(ROWS, list(KINDS), list(GRAPHS), BOUNDS))


@pytest.mark.parametrize(("name", "context", "kind", "graph", "bounds"), FORMS)
# Torch's own notes of missing batching rules.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_the_patch_changes_nothing(name, context, kind, graph, bounds, edge_index, monkeypatch):
    if bounds == "none":
        monkeypatch.setattr(thresholds, "now", thresholds.NONE)
    elif bounds != "small graphs too":
        small_blocks.force(monkeypatch, compiled=bounds == "compiled messages")
    case, dtype = LAYERS[name], DTYPES.get(context, torch.float64)
    torch.manual_seed(0)
    made = case.make()
    # Dropout of other dtypes draws other numbers.
    made = made.eval() if context in DTYPES else made
    operands = operands_of(case, torch.float64)
    edges = over(kind, GRAPHS[graph](edge_index), operands)

    def result(run: Callable[..., Any], edges: Any, dtype: torch.dtype = dtype) -> Any:
        torch.manual_seed(3)
        given = {each: tensor.to(dtype) for each, tensor in operands.items()}
        edges = edges.to(dtype) if kind in LAYOUTS else edges
        try:
            return run(copy.deepcopy(made).to(dtype), case_call(case, edges), given)
        except Exception as error:  # what PyG raises is compared
            return Error(type(error), str(error).partition("[torch.")[0])

    theirs = result(CONTEXTS[context], edges)
    expected = result(JUDGES[context], edges) if context in JUDGES else theirs
    exact = result(gradients, edges, torch.float64) if context in DTYPES else None
    if isinstance(exact, Error):  # PyG makes numbers of the default dtype somewhere
        exact = expected
    with onehop.patch():
        for _ in range(2):
            found = result(CONTEXTS[context], edges)
            if isinstance(expected, Error) or isinstance(found, Error):
                assert found == theirs or (context in FURTHER and not isinstance(found, Error))
            elif context in DTYPES:
                assert_as_good(found, expected, exact)
            else:
                assert_same(found, expected)
