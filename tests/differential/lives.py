"""Steps about the lives of things: made anew, copied, pickled, freed; hooks; and the patch itself."""

import copy
import gc
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import onehop
from tests.differential.program import Spec
from tests.differential.world import World, new_edges, new_nodes


@dataclass(frozen=True, repr=False)
class NewFeatures(Spec):
    """Frees features and makes others, which may get their memory."""

    features: int = 0
    seed: int = 0  # of the new ones

    def run(self, world: World) -> None:
        number = self.features % len(world.nodes)
        world.nodes[number] = None  # type: ignore[call-overload]
        world.nodes[number] = new_nodes(world, number, self.seed)


@dataclass(frozen=True, repr=False)
class NewEdges(Spec):
    """Frees a graph and makes another, which may get its memory."""

    graph: int = 0
    seed: int = 0  # of the new one

    def run(self, world: World) -> None:
        number = self.graph % len(world.graphs)
        world.graphs[number] = None  # type: ignore[call-overload]
        world.graphs[number] = new_edges(world, number, self.seed)


@dataclass(frozen=True, repr=False)
class Free(Spec):
    """Forgets outputs."""

    all: bool = True  # whether all of them, and not the newest alone
    collect: bool = False  # whether the garbage is collected

    def run(self, world: World) -> None:
        del world.outputs[0 if self.all else -1 :]
        if self.collect:
            gc.collect()


def _saved(model: torch.nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _reloaded(model: torch.nn.Module) -> Any:
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    return model


def _swapped(model: torch.nn.Module) -> Any:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return model.float().double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


CHANGES: dict[str, Callable[[torch.nn.Module], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save and load": _saved,
    "load state": _reloaded,
    "train": lambda model: model.train(),
    "eval": lambda model: model.eval(),
    "freeze": lambda model: model.requires_grad_(False),
    "unfreeze": lambda model: model.requires_grad_(True),
    "zero grad": lambda model: model.zero_grad() or model,
    "zero grad to zero": lambda model: model.zero_grad(set_to_none=False) or model,
    "float and double": lambda model: model.float().double(),
    "swapped conversion": _swapped,
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "share memory": lambda model: model.share_memory(),
}


_CONVERSIONS = ("float and double", "swapped conversion", "bfloat16")


@dataclass(frozen=True, repr=False)
class Change(Spec):
    """Changes a model, or puts a copy in its place."""

    model: int = 0
    how: str = "deepcopy"  # a key of ``CHANGES``

    def run(self, world: World) -> None:
        number = self.model % len(world.models)
        if self.how in _CONVERSIONS:
            world.forget_recorded()  # what backward needs is not of the dtype that it was
        world.models[number] = CHANGES[self.how](world.models[number])
        if self.how not in ("train", "eval", "zero grad", "zero grad to zero"):
            world.optimisers.pop(number, None)


def _new_parameters(model: torch.nn.Module) -> None:
    for module in model.modules():
        for name, each in list(module._parameters.items()):
            if each is not None and not isinstance(each, torch.nn.UninitializedParameter):
                setattr(module, name, torch.nn.Parameter(each.detach() * 0.5, each.requires_grad))


def _other_numbers(model: torch.nn.Module) -> None:
    for each in model.parameters():
        if not isinstance(each, torch.nn.UninitializedParameter):
            each.data = each.data * 0.5


def _other_attributes(model: torch.nn.Module) -> None:
    """Halves the numbers that modules have as attributes."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if type(value) is float:
                setattr(module, name, value * 0.5)


def _other_activations(model: torch.nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if isinstance(child, torch.nn.ReLU | torch.nn.Sigmoid):
                setattr(module, name, torch.nn.Tanh())


def _other_linear_steps(model: torch.nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if type(child) is torch.nn.Linear:
                setattr(module, name, torch.nn.Sequential(copy.deepcopy(child), torch.nn.Tanh()))


def _other_style(model: torch.nn.Module) -> None:
    for module in model.modules():
        if getattr(module, "style", None) is not None:
            module.style = "pair" if module.style != "pair" else "heads"


def _parts_in_evaluation(model: torch.nn.Module) -> None:
    for module in list(model.modules())[2:]:
        module.eval()


def _one_part_frozen(model: torch.nn.Module) -> None:
    for each in list(model.parameters())[:1]:
        each.requires_grad_(not each.requires_grad)


ALTERATIONS: dict[str, Callable[[torch.nn.Module], None]] = {
    "new parameters": _new_parameters,
    "other numbers": _other_numbers,
    "other attributes": _other_attributes,
    "other activations": _other_activations,
    "other linear steps": _other_linear_steps,
    "other style": _other_style,
    "parts in evaluation": _parts_in_evaluation,
    "one part frozen": _one_part_frozen,
}


@dataclass(frozen=True, repr=False)
class Alter(Spec):
    """Changes what the messages of a model are made of."""

    model: int = 0
    how: str = "new parameters"  # a key of ``ALTERATIONS``

    def run(self, world: World) -> None:
        # What runs again in the backward pass would find them.
        if self.how == "other numbers" or (self.how == "other attributes" and world.checkpointed):
            world.forget_recorded()
        ALTERATIONS[self.how](world.model(self.model))
        world.optimisers.pop(self.model % len(world.models), None)


@dataclass(frozen=True, repr=False)
class ResetCaches(Spec):
    """Lets layers with ``cached=True`` forget, by their own ``reset_parameters``."""

    model: int = 0  # whose layers

    def run(self, world: World) -> None:
        for module in list(world.model(self.model).modules())[1:]:
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


def _times_two(module: Any, *values: Any) -> Any:
    """A hook of any kind that doubles what it is given last."""
    value = values[-1]
    if isinstance(value, tuple):
        return tuple(
            each * 2.0 if isinstance(each, Tensor) and each.is_floating_point() else each for each in value
        )
    return value * 2.0 if isinstance(value, Tensor) and value.is_floating_point() else None


def _message_hook(module: Any, inputs: Any, out: Any) -> Any:
    return out * 2.0 if isinstance(out, Tensor) else None


def _times_two_grad(module: Any, given: Any, taken: Any) -> Any:
    return tuple(None if each is None else each * 2.0 for each in given)


def _look(module: Any, *values: Any) -> None:
    """A hook that changes nothing."""


def _layer_of(model: torch.nn.Module, kind: str) -> Any:
    """The first layer of a model that has message passing, or the first linear one."""
    for module in model.modules():
        if kind == "linear" and type(module).__name__ == "Linear":
            return module
        if kind == "message passing" and hasattr(module, "propagate"):
            return module
        if kind == "aggregation" and hasattr(module, "aggr_module"):
            return module.aggr_module
    return model


def _registering(kind: str, method: str, hook: Callable[..., Any]) -> Callable[[torch.nn.Module], Any]:
    return lambda model: getattr(_layer_of(model, kind), f"register_{method}")(hook)


HOOKS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "forward": _registering("message passing", "forward_hook", _times_two),
    "forward, whole model": _registering("", "forward_hook", _look),
    "linear forward": _registering("linear", "forward_hook", _times_two),
    "linear before": _registering("linear", "forward_pre_hook", _times_two),
    "linear backward": _registering("linear", "full_backward_hook", _times_two_grad),
    "backward": _registering("message passing", "full_backward_hook", _look),
    "aggregation": _registering("aggregation", "forward_hook", _times_two),
    "message": _registering("message passing", "message_forward_hook", _message_hook),
    "propagate": _registering("message passing", "propagate_forward_hook", _message_hook),
    "aggregate": _registering("message passing", "aggregate_forward_hook", _message_hook),
    "parameter": lambda model: next(model.parameters()).register_hook(lambda grad: grad * 2.0),
    "every module": lambda model: torch.nn.modules.module.register_module_forward_hook(_look),
}


@dataclass(frozen=True, repr=False)
class Hook(Spec):
    """Registers a hook."""

    model: int = 0  # on which model, or on a part of it
    kind: str = "forward"  # a key of ``HOOKS``

    def run(self, world: World) -> None:
        world.hooks.append(HOOKS[self.kind](world.model(self.model)))


@dataclass(frozen=True, repr=False)
class Unhook(Spec):
    """Removes every hook."""

    def run(self, world: World) -> None:
        for hook in world.hooks:
            hook.remove()
        world.hooks.clear()


def _paused(world: World) -> None:
    if world.handle is not None and world.handle.active:
        with world.handle.paused():
            pass


PATCHES: dict[str, Callable[[World], object]] = {
    "unpatch": lambda world: onehop.unpatch(),
    "patch": lambda world: onehop.patch(),
    "clear cache": lambda world: onehop.clear_cache(),
    "only": lambda world: onehop.patch(only=["GCNConv", "SAGEConv"]),
    "no reuse": lambda world: onehop.patch(reuse=False),
    "no association": lambda world: onehop.patch(associate=False),
    "pause": _paused,
}


@dataclass(frozen=True, repr=False)
class Patching(Spec):
    """Takes the patch back, puts it in again, changes it; nothing in the run without it."""

    how: str = "unpatch"  # a key of ``PATCHES``

    def run(self, world: World) -> None:
        if world.checkpointed:
            world.forget_recorded()  # their forward pass would run again, now otherwise than before
        if world.handle is not None:
            PATCHES[self.how](world)


@dataclass(frozen=True, repr=False)
class Seed(Spec):
    """Seeds torch's generator."""

    seed: int = 0  # with what

    def run(self, world: World) -> None:
        torch.manual_seed(self.seed)


@dataclass(frozen=True, repr=False)
class ThreadCount(Spec):
    """Sets torch's number of threads."""

    count: int = 2

    def run(self, world: World) -> None:
        torch.set_num_threads(self.count)
