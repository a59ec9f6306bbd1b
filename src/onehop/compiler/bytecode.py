"""A reader of functions' bytecode: the names that a function reads from outside, and its side effects.

This module neither runs code nor resolves names; :mod:`onehop.compiler.functions` resolves the names found
here.
"""

import dis
import functools
import itertools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onehop.compiler.lines import Line

Names = tuple[str, ...]
"""A name, and the names of attributes read from it, one after another."""

# Prefixes of instructions that only compute, and of exceptions among them that reach outside.
_COMPUTING = (
    "BINARY_", "BUILD_", "CALL", "COMPARE_OP", "CONTAINS_OP", "CONVERT_VALUE", "COPY", "DELETE_FAST", "DICT_",
    "END_FOR", "EXTENDED_ARG", "FOR_ITER", "FORMAT_", "GET_ITER", "GET_LEN", "IS_OP", "JUMP_", "KW_NAMES",
    "LIST_", "LOAD_", "MAKE_", "MAP_ADD", "NOP", "NOT_TAKEN", "POP_", "PRECALL", "PUSH_NULL", "RAISE_VARARGS",
    "RERAISE", "RESUME", "RETURN_CONST", "RETURN_VALUE", "SET_", "STORE_FAST", "SWAP", "TO_BOOL", "UNARY_",
    "UNPACK_",
)  # fmt: skip
_REACHING = (
    "LOAD_BUILD_CLASS", "LOAD_CLASSDEREF", "LOAD_FROM_DICT", "LOAD_LOCALS", "LOAD_NAME", "LOAD_SPECIAL",
)  # fmt: skip
# Further instructions of generators inside a function; the function itself consumes a generator, or returns
# no tensor.
_GENERATING = ("RETURN_GENERATOR", "YIELD_VALUE", "CALL_INTRINSIC", "STOPITERATION_ERROR")
_LOCAL = ("LOAD_FAST", "LOAD_DEREF")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
_ELEMENTS = {"STORE_SUBSCR": 1, "STORE_SLICE": 2}
_CONTAINERS = ("BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "LIST_EXTEND")
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT", "UNARY_NEGATIVE", "BUILD_SLICE", "BUILD_TUPLE")
CHANGING = frozenset({
    "append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "update",
})  # fmt: skip
"""Methods that change a list or a dictionary, but not a tensor."""

# The name noted for the result of an operator, which is a tensor or a new list.
_ARITHMETIC = ("", "")
MAKING = frozenset({
    "add", "clone", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "repeat", "reshape",
    "view",
})  # fmt: skip
"""Methods of tensors whose result may be written to; a trial watches such writes."""


@dataclass(slots=True)
class Scan:
    """The names and effects in the code of a function, each with the first line where it occurs.

    Attributes:
        paths: Names from outside, each with the names of attributes that are read from it one after another.
        attributes: Names of attributes of all other values.
        texts: The function's strings that could be names.
        writes: Names of outside functions to whose results the function writes elements.
        results: Names of attributes of other values; the function calls them and writes elements to the
            results.
        effect: A side effect, with its line; None if the function only computes.
        in_place: The first line with an operator such as ``+=``, which changes a list; None without one.
        counts_in_c: Whether the function may use a number so that the number's Python class does not notice
            it.
    """

    paths: dict[Names, Line] = field(default_factory=dict)
    attributes: dict[str, Line] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    writes: dict[Names, Line] = field(default_factory=dict)
    results: dict[str, Line] = field(default_factory=dict)
    effect: tuple[str, Line] | None = None
    in_place: Line | None = None
    counts_in_c: bool = False

    def note(self, effect: str, line: Line) -> None:
        """Notes an effect; only the first one is kept."""
        self.effect = self.effect or (effect, line)


@dataclass(frozen=True, slots=True)
class _Instruction:
    """A bytecode instruction, or half of an instruction that does two things."""

    name: str
    argument: object
    line: Line
    effect: int  # change of the stack size; the first half has the change of both halves
    text: str = ""
    is_target: bool = False  # whether it is a jump target, so that the instruction before it may not have run


@functools.lru_cache(maxsize=512)
def scan_of(code: types.CodeType) -> Scan:
    """Reads the code of a function and of its inner functions."""
    scan, outer = Scan(), code.co_freevars
    for part in _parts(code):
        for constant in part.co_consts:
            if isinstance(constant, str):
                scan.counts_in_c |= "%" in constant
                if constant.isidentifier():
                    scan.texts.add(constant)
        _Part(part, list(_instructions(part)), scan, outer, part is not code).read()
    return scan


def _parts(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields the code of a function and of its inner functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _parts(constant)


def _instructions(code: types.CodeType) -> Iterator[_Instruction]:
    """Yields the instructions of a function; an instruction that does two things is yielded as two."""
    number = code.co_firstlineno
    for op in dis.get_instructions(code):
        if op.positions is not None and op.positions.lineno is not None:
            number = op.positions.lineno
        line = code.co_filename, number
        effect = dis.stack_effect(op.opcode, op.arg, jump=False)
        name = op.opname.replace("_BORROW", "")
        halves = name.count("_FAST")
        if halves == 2 and isinstance(op.argval, tuple):
            first, second = name.split("_FAST_")
            yield _Instruction(f"{first}_FAST", op.argval[0], line, effect, "", op.is_jump_target)
            yield _Instruction(second, op.argval[1], line, 0)
        else:
            yield _Instruction(name, op.argval, line, effect, op.argrepr, op.is_jump_target)


class _Part:
    """Reads the code of one function into a scan."""

    def __init__(
        self,
        code: types.CodeType,
        instructions: Sequence[_Instruction],
        scan: Scan,
        outer: Names,
        is_inside: bool,
    ) -> None:
        self._code, self._all, self._scan, self._outer = code, instructions, scan, outer
        self._computing = (*_COMPUTING, *_GENERATING) if is_inside else _COMPUTING
        parameters = code.co_argcount + code.co_kwonlyargcount
        self._parameters, variables = code.co_varnames[:parameters], set(code.co_varnames[parameters:])
        stores = [(each, at) for at, each in enumerate(instructions) if each.name == "STORE_FAST"]
        # Local variables that hold only lists and dictionaries made in this function.
        self._lists = variables - {
            each.argument
            for each, at in stores
            if each.is_target or not self._all[at - 1].name.startswith(_CONTAINERS)
        }
        # Local variables that hold only results of calls, each with the names of what was called.
        self._results: dict[object, list[Names]] = {}
        for each, at in stores:
            self._results.setdefault(each.argument, []).append(self._called(at))

    def read(self) -> None:
        """Reads all instructions."""
        scan, path, start = self._scan, Names(), ("", 0)
        for at, op in enumerate(self._all):
            name, argument = op.name, op.argument
            if path and name in _ATTRIBUTE and not op.is_target:
                path = (*path, str(argument))
                continue
            if path:
                scan.paths.setdefault(path, start)
                path = ()
            if self._is_outside(op) and not self._is_of_super(at):
                path, start = (str(argument),), op.line
            elif name in _ATTRIBUTE:
                owner = self._all[at - 1]
                fresh = owner.name == "LOAD_FAST" and owner.argument in self._lists and not op.is_target
                if not (fresh and argument in CHANGING):
                    scan.attributes.setdefault(str(argument), op.line)
            elif name in _ELEMENTS:
                self._write(at, _ELEMENTS[name])
            elif name == "STORE_DEREF" and argument in self._code.co_cellvars:
                pass  # a local variable that an inner function shares
            elif not name.startswith(self._computing) or name.startswith(_REACHING):
                scan.note(_effect_reason(name), op.line)
            elif name == "IS_OP" and (op.is_target or self._all[at - 1].name not in _CONSTANTS):
                scan.note("asks whether two objects are one", op.line)
            if name == "BINARY_OP" and op.text.endswith("="):
                scan.in_place = scan.in_place or op.line
            if name == "BINARY_SUBSCR" or (name == "BINARY_OP" and op.text == "[]"):
                key = self._all[max(self._start(at, 1), 0) : at]
                scan.counts_in_c |= not all(part.name in _CONSTANTS for part in key)
            scan.counts_in_c |= name == "BINARY_SLICE"

    def _is_outside(self, each: _Instruction) -> bool:
        if each.name == "LOAD_GLOBAL":
            return True
        return each.name == "LOAD_DEREF" and each.argument in self._outer

    def _is_of_super(self, at: int) -> bool:
        """Return whether an instruction loads the class that only ``super`` gets."""
        around = self._all[at - 1 : at + 3]
        if len(around) < 4:
            return False
        before, _, owner, call = around
        if before.name != "LOAD_GLOBAL" or before.argument != "super" or not owner.name.startswith(_LOCAL):
            return False
        return call.name == "LOAD_SUPER_ATTR" or (call.name in ("PRECALL", "CALL") and call.argument == 2)

    def _write(self, at: int, keys: int) -> None:
        """Reads a write to elements of an object that is ``keys`` keys below the top of the stack."""
        line, key = self._all[at].line, self._start(at, keys)
        owner = self._all[key - 1] if key > 0 and not self._all[key].is_target else None
        if owner is not None and owner.name.startswith("LOAD_FAST"):
            if owner.argument in self._lists:
                return
            calls = self._results.get(owner.argument, [()])
            if all(calls) and owner.argument not in self._parameters:
                for call in calls:
                    if call[0]:
                        self._scan.writes.setdefault(call, line)
                    elif call[1]:
                        self._scan.results.setdefault(call[1], line)
                return
        self._scan.note(_effect_reason("STORE_"), line)

    def _start(self, end: int, values: int) -> int:
        """Return the first instruction of those that compute ``values`` values for ``end``; -1 if unknown."""
        left = 0
        for at in range(end - 1, -1, -1):
            if self._all[at + 1].is_target:
                return -1
            left += self._all[at].effect
            if left == values:
                return at
        return -1

    def _called(self, at: int) -> Names:
        """Return the name of the function whose result is on the stack at ``at``; empty if it is unknown.

        The name begins with "" if the function is an attribute of a local variable.
        """
        before = self._all[at - 1]
        if self._all[at].is_target:
            return ()
        if before.name == "BINARY_OP" and before.text != "[]":
            return _ARITHMETIC
        first = self._start(at, 1) if before.name.startswith("CALL") else -1
        if first < 0:
            return ()
        owner, *rest = itertools.dropwhile(lambda each: each.name == "PUSH_NULL", self._all[first:at])
        behind = itertools.takewhile(lambda each: each.name in _ATTRIBUTE, rest)
        names = [str(each.argument) for each in behind]
        if self._is_outside(owner):
            return (str(owner.argument), *names)
        is_local = owner.name in _LOCAL and len(names) == 1
        return ("", names[0]) if is_local else ()


def _effect_reason(name: str) -> str:
    """Return the sentence for an instruction that does more than compute."""
    if name.startswith(("STORE_", "DELETE_")):
        return "stores something outside its local variables"
    if name.startswith(("BEFORE_WITH", "LOAD_SPECIAL", "WITH_")):
        return "enters a context"
    if name.startswith(("PUSH_EXC", "CHECK_EXC")):
        return "handles exceptions"
    if name.startswith("IMPORT_"):
        return "imports a module"
    return f"does more than compute ({name})"
