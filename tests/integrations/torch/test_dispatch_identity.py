"""Kernels, not names: every function, method and slot of torch is the same object under the patch.

So whatever finds functions by what they are, finds them: subclasses, modes, torch.fx, quantisation, pickle.
"""

import copy
import ctypes
import enum
import inspect
import pickle
import sys
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.jit import _builtins
from torch.overrides import TorchFunctionMode

import onehop
from tests.integrations.torch.dispatched import CASES, both, each_case, operands, patched
from tests.integrations.torch.functions import HELD, call, each_function, found, known, operand

pytestmark = pytest.mark.filterwarnings("ignore")

OWNERS = {
    "torch": torch,
    "torch.Tensor": Tensor,
    "torch.nn.Parameter": torch.nn.Parameter,
    "torch.nn.functional": F,
    "torch._C._VariableFunctions": torch._C._VariableFunctions,
    "torch._C.TensorBase": torch._C.TensorBase,
    "torch._C._nn": torch._C._nn,
    "torch.ops.aten": torch.ops.aten,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.sparse": torch.sparse,
    "torch.nn.Module": torch.nn.Module,
    "torch.nn.Linear": torch.nn.Linear,
    "torch.nn.Embedding": torch.nn.Embedding,
    "torch.nn.EmbeddingBag": torch.nn.EmbeddingBag,
    "torch.overrides": torch.overrides,
    "torch.jit._builtins": _builtins,
    "torch.autograd": torch.autograd,
}


def attributes(owner: Any) -> dict[str, Any]:
    """All attributes as they are held, those of base classes too."""
    if isinstance(owner, ModuleType):
        return dict(vars(owner))
    return {name: inspect.getattr_static(owner, name) for name in dir(owner)}


@pytest.mark.parametrize("name", OWNERS)
def test_every_attribute_is_the_same_object(name: str) -> None:
    owner = OWNERS[name]
    with patched():
        CASES["x[i]"](*operands())  # imports what is imported at the first call
    before = attributes(owner)
    with patched():
        under = attributes(owner)
    after = attributes(owner)
    for now in (under, after):
        assert [each for each in before if now.get(each) is not before[each]] == []
        new = {each for each in now.keys() - before.keys() if not isinstance(now[each], ModuleType)}
        assert new == set()


def test_only_dropout_is_replaced_by_name() -> None:
    before = dict(vars(torch._VF))
    with patched():
        replaced = {name for name, each in vars(torch._VF).items() if before.get(name) is not each}
        names = onehop.patched()
    assert replaced <= {"dropout", "dropout_"}
    left = [each for each in names if each.startswith("torch.") and "dropout" not in each]
    # Operators have no name that is replaced.
    assert [each for each in left if not each.startswith(("torch.compiler", "torch.ops."))] == []


def slots(kind: type) -> list[int]:
    """The functions of a type's C slots for numbers, sequences and mappings."""
    # tp_as_number, tp_as_sequence and tp_as_mapping follow the type's head and nine other pointers.
    words = ctypes.sizeof(ctypes.c_void_p)
    tables = (ctypes.c_void_p * 3).from_address(id(kind) + object.__basicsize__ + 10 * words)
    held: list[int] = []
    for address, length in zip(tables, (36, 10, 3), strict=True):
        table = (ctypes.c_void_p * length).from_address(address) if address else ()
        held += [each or 0 for each in table]
    return held


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="slots are CPython's")
@pytest.mark.parametrize("kind", [Tensor, torch.nn.Parameter, torch._C.TensorBase])
def test_slots_of_types(kind: type) -> None:
    before = slots(kind)
    assert any(before)
    with patched():
        assert slots(kind) == before
    assert slots(kind) == before


class Seeing(Tensor):
    """A class of a user's, that looks functions up by what they are."""

    seen: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        cls.seen.append((known(function), len(args), sorted(kwargs or {})))
        return super().__torch_function__(function, types, args, kwargs or {})


class Noting(TorchFunctionMode):
    """A mode that does the same, and lets torch run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen.append((known(function), repr(function), len(args), sorted(kwargs or {})))
        return function(*args, **(kwargs or {}))


@each_function
def test_in_torch_function_of_a_subclass(name: str) -> None:
    def run() -> Any:
        Seeing.seen.clear()
        out = call(name, operand(name).as_subclass(Seeing))
        return list(Seeing.seen), type(out).__name__

    assert both(run)[0]


@each_function
def test_in_a_function_mode(name: str) -> None:
    def run() -> Any:
        with Noting() as mode:
            call(name, operand(name))
        return mode.seen

    assert both(run)


@each_case
def test_a_function_mode_sees_the_same_functions(name: str) -> None:
    def run() -> Any:
        x, v = operands()
        with Noting() as mode:
            out = CASES[name](x, v)
        return mode.seen, out

    assert both(run)[0]


@each_function
def test_what_python_tells_of_a_function(name: str) -> None:
    def run() -> Any:
        function = found(name)
        signature: Any
        try:
            signature = str(inspect.signature(function))
        except ValueError as error:
            signature = str(error)
        names = [
            getattr(function, each, None) for each in ("__name__", "__qualname__", "__module__", "__doc__")
        ]
        kinds = [
            getattr(inspect, each)(function) for each in ("isbuiltin", "isfunction", "ismethoddescriptor")
        ]
        return signature, names, kinds, type(function).__name__, repr(function), inspect.getdoc(function)

    both(run)


@each_function
def test_what_torch_tells_of_a_function(name: str) -> None:
    def run() -> Any:
        function = found(name)
        return (
            torch.overrides.resolve_name(function),
            function in torch.overrides.get_testing_overrides(),
            function in torch.overrides.get_ignored_functions(),
            torch.overrides.is_tensor_method_or_property(function),
            _builtins._find_builtin(function),
            type(torch._dynamo.trace_rules.lookup(function)).__name__,
            str(torch._dynamo.trace_rules.lookup(function)),
        )

    assert both(run)


@each_function
def test_copies_and_pickles(name: str) -> None:
    with patched():
        function = found(name)
        stored = pickle.dumps(function)
        assert pickle.loads(stored) is function
        assert copy.deepcopy(function) is function
        assert partial(function).func is HELD[name]
    assert pickle.loads(stored) is HELD[name]


PICKED = ("F.linear", "torch.gather", "torch.index_add", "torch.scatter_add", "torch.segment_reduce")


@pytest.mark.parametrize("name", PICKED)
def test_as_an_attribute_of_a_class(name: str) -> None:
    def run() -> Any:
        # What is a builtin is not bound to an instance, as a function of Python's is.
        kind = type("Picks", (), {"pick": found(name)})
        return call(name, operand(name), kind().pick)

    both(run)


@pytest.mark.parametrize("name", PICKED)
def test_as_a_member_of_an_enum(name: str) -> None:
    def run() -> Any:
        body = enum.EnumType.__prepare__("Kind", (enum.Enum,))
        body["pick"], body["other"] = found(name), 1
        kind: Any = enum.EnumType("Kind", (enum.Enum,), body)
        return [each.name for each in kind], kind.pick is found(name)

    both(run)


@pytest.mark.parametrize("train", [1, 0, None, "yes", torch.tensor(True)], ids=str)
def test_other_flags_of_dropout_are_torchs_to_judge(train: Any) -> None:
    def run() -> Any:
        torch.manual_seed(0)
        x = torch.ones(5000, requires_grad=True)
        out = F.dropout(x, 0.3, train)
        return out, type(out.grad_fn).__name__

    both(run, raises=None)
