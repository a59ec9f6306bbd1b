"""The contexts in which tests of the patch call a layer: each returns what came of it, detached or not."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Model = torch.nn.Module
Operands = dict[str, Tensor]


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


def functional(model: Model, call: Any, operands: Operands) -> list[Tensor]:
    """Gradients of a function, twice, and the model itself, whose cache was made inside of the function."""
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters: Operands, x: Tensor) -> Tensor:
        inner = lambda *args: torch.func.functional_call(model, parameters, args)  # noqa: E731
        return call(inner, **operands | {"x": x}).square().sum()

    found = []
    for _ in range(2):
        of_parameters, of_x = torch.func.grad(loss, argnums=(0, 1))(parameters, operands["x"])
        found += [*of_parameters.values(), of_x, call(model, **operands).detach()]
    return found


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
