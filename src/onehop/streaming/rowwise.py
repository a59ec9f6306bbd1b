"""A model as torch.fx traces it: layers over edges, and between them functions that treat each row alone.

Only the functions listed here are allowed between layers, so that rows can be computed in blocks.
"""

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from onehop.errors import ArgumentError

# Functions of each number alone, or of numbers at the same position.
_ELEMENTWISE_METHODS = ("relu", "tanh", "sigmoid", "add", "sub", "mul", "div", "abs", "exp")
_ELEMENTWISE = (
    *(torch.relu, torch.tanh, torch.sigmoid, torch.add, torch.sub, torch.mul, torch.div),
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg),
    *(F.relu, F.elu, F.leaky_relu, F.gelu, F.silu, F.selu, F.softplus, F.tanh, F.sigmoid),
)
# Functions of the numbers of a row, if the dimension is the last one.
_ALONG_ROWS = (torch.cat, F.softmax, F.log_softmax, F.normalize, torch.softmax, torch.log_softmax)
_ALONG_ROWS_METHODS = ("softmax", "log_softmax")
# F.linear as it appears in a trace, even if a patch has replaced it.
_PRODUCTS = (torch._C._nn.linear, torch.matmul, operator.matmul)
_MODULES = (
    *(nn.Linear, nn.Identity, nn.Dropout, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.SELU, nn.PReLU),
    *(nn.Tanh, nn.Sigmoid, nn.Softplus, nn.LayerNorm, nn.BatchNorm1d),
)
# In evaluation mode, these modules return their input itself, not a copy.
_HANDING_ON = (nn.Identity, nn.Dropout)
_VALUE = "value"


class _Tracer(fx.Tracer):
    def __init__(self, is_layer: Callable[[nn.Module], bool]) -> None:
        super().__init__()
        self._is_layer = is_layer

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return self._is_layer(module) or type(module) in _MODULES


def traced(model: nn.Module, is_layer: Callable[[nn.Module], bool]) -> tuple[fx.Graph, list[fx.Node]]:
    """Return the graph of a model and its layers in order, after checking that the rest works row by row.

    The model must be in evaluation mode; it is called with features and an ``edge_index``, and is not
    changed. For tensors that its ``forward`` creates, the graph's nodes store the values. Raises an
    ArgumentError with the reason if the model cannot be divided.
    """
    training = next((name for name, module in model.named_modules() if module.training), None)
    if training is not None:
        where = f", and {training} is in training mode" if training else ""
        raise ArgumentError(f"model: expected evaluation mode{where}; call model.eval() first.")
    names = list(inspect.signature(model.forward).parameters.values())
    rest = {each.name: each.default for each in names[2:]}
    if len(names) < 2 or inspect.Parameter.empty in rest.values():
        raise refusal("its forward takes other arguments than the features and the edge_index")
    before = set(vars(model))
    try:
        graph = _Tracer(is_layer).trace(model, concrete_args=rest)
        for node in graph.nodes:
            if node.op == "get_attr":
                node.meta[_VALUE] = operator.attrgetter(str(node.target))(model)
    except Exception as error:
        # The model's own code may raise any error when it runs on a stand-in for a tensor.
        raise refusal(f"torch.fx cannot trace it ({type(error).__name__}: {error})") from error
    finally:
        # torch.fx stores tensors that forward creates here, under new names at each call.
        for name in set(vars(model)) - before:
            delattr(model, name)
    nodes = list(graph.nodes)
    edge_index = nodes[1]
    needed = _needed(nodes[-1])
    modules = dict(model.named_modules())
    layers = []
    for node in nodes:
        if _in_place(node, modules) and any(_is_shared(each, modules) for each in node.all_input_nodes):
            raise refusal(f"{_name_of(node)} changes its input in place, which others read")
        if node not in needed or node in nodes[:2] or node.op in ("output", "get_attr"):
            continue
        if node.op == "call_module" and is_layer(modules[str(node.target)]):
            if node.args[1:] != (edge_index,) or any(value is not None for value in node.kwargs.values()):
                raise refusal(f"{node.target} takes more than features and the edge_index")
            layers.append(node)
            continue
        if edge_index in node.all_input_nodes or not _goes_by_rows(node, modules):
            raise refusal(f"{_name_of(node)} is no function of each row on its own that is known")
    if not isinstance(nodes[-1].args[0], fx.Node) or nodes[-1].args[0] in nodes[:2]:
        raise refusal("it does not return one tensor that it has computed")
    return graph, layers


def refusal(reason: str) -> ArgumentError:
    """Return the error for a model that cannot be divided."""
    return ArgumentError(
        f"model: it cannot be divided into layers: {reason}. Run it in memory, on "
        "graph.load(), or on batches."
    )


def run(node: fx.Node, model: nn.Module, value: Callable[[fx.Node], Tensor]) -> Tensor:
    """Compute the rows of a node from its inputs' rows."""

    def of(argument: Any) -> Any:
        return fx.map_arg(argument, value)

    args, kwargs = of(node.args), of(node.kwargs)
    if node.op == "get_attr":
        out: Tensor = constant(node)
    elif node.op == "call_module":
        out = model.get_submodule(str(node.target))(*args, **kwargs)
    elif node.op == "call_method":
        out = getattr(args[0], str(node.target))(*args[1:], **kwargs)
    else:
        assert callable(node.target)
        out = node.target(*args, **kwargs)
    return out


def constant(node: fx.Node) -> Tensor:
    """Return the parameter, buffer or other tensor of a model that a node of :func:`traced` represents."""
    value: Tensor = node.meta[_VALUE]
    return value


def _needed(output: fx.Node) -> set[fx.Node]:
    """Return the nodes on which a result depends."""
    nodes, waiting = set(), [output]
    while waiting:
        node = waiting.pop()
        if node not in nodes:
            nodes.add(node)
            waiting.extend(node.all_input_nodes)
    return nodes


def _name_of(node: fx.Node) -> str:
    """Return the name of the function that a node calls."""
    return str(getattr(node.target, "__name__", node.target))


def _is_by_rows(module: nn.Module) -> bool:
    if isinstance(module, nn.BatchNorm1d):
        return module.running_mean is not None  # else it uses the mean of the given rows
    if isinstance(module, nn.LayerNorm):
        return len(module.normalized_shape) == 1
    return type(module) in _MODULES


def _in_place(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Return whether a function writes to its arguments, judged by its name or by an argument."""
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    name = _name_of(node)
    named = node.op in ("call_method", "call_function") and name.endswith("_") and not name.endswith("__")
    return named or bool(node.kwargs.get("inplace", False))


def _is_shared(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Return whether a tensor has other readers, under this name or under an earlier one."""
    while len(node.users) == 1:
        if node.op == "call_module":
            handed_on = type(modules[str(node.target)]) in _HANDING_ON
        else:
            handed_on = node.op == "call_function" and _name_of(node) == F.dropout.__name__
        if not handed_on:
            return False
        node = node.all_input_nodes[0]
    return True


def _goes_by_rows(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return _is_by_rows(modules[str(node.target)])
    constants = {each: constant(each).dim() for each in node.all_input_nodes if each.op == "get_attr"}
    if node.target in _PRODUCTS:
        # A matrix may only be the second factor; as the first factor, it would mix rows.
        first, *others = (*node.args, *node.kwargs.values())
        return first not in constants and all(each is None or each in constants for each in others)
    if any(dims > 1 for dims in constants.values()):
        return False  # a constant may have a row for each node
    if node.target is F.layer_norm:
        shape = node.args[1] if len(node.args) > 1 else None
        return isinstance(shape, tuple | list) and len(shape) == 1
    if node.op == "call_method" and node.target in _ELEMENTWISE_METHODS:
        return True
    if node.target in _ELEMENTWISE:
        return True
    if node.target is F.dropout:
        return node.kwargs.get("training") is False or (len(node.args) > 2 and node.args[2] is False)
    along = node.target in _ALONG_ROWS or (node.op == "call_method" and node.target in _ALONG_ROWS_METHODS)
    place = 2 if node.target is F.normalize else 1
    dim = node.kwargs.get("dim", node.args[place] if len(node.args) > place else None)
    return along and dim in (-1, 1)
