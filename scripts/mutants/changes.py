"""The changes that are made: one token or one statement of a module at a time.

Cosmic Ray serves for this half: its operators change parso's tree, so a mutant differs from the source in one
place and nothing else. Its runner does not serve. It starts one fixed command a mutant, which imports torch
and PyG anew (four seconds), runs all tests or none, and writes into the source that is being worked on.
mutmut puts all mutants into the module at once, behind a trampoline; functions that are traced, compiled or
compared by identity are then others than the ones tested. It draws no sample, and begins with a run of all
tests.

Never changed, because no test should notice: annotations, docstrings and other texts, arguments of exceptions
and of log calls, decorators (of data classes, properties and caches of functions), what is overloaded
for type checkers, and the ``strict`` of zip.
"""

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parso
from cosmic_ray import plugins
from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import MutationVisitor
from cosmic_ray.operators.operator import Example, Operator

COMPARISONS = ["Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt"]
COMPARISONS += ["GtE_Lt", "Is_IsNot", "IsNot_Is"]
ARITHMETIC = ["Add_Sub", "Sub_Add", "Mul_Add", "Mul_FloorDiv", "FloorDiv_Mul", "Div_Mul", "Mod_FloorDiv"]
ARITHMETIC += ["BitOr_BitAnd", "BitAnd_BitOr", "LShift_RShift", "RShift_LShift", "Pow_Mul"]
OTHERS = [
    "ReplaceUnaryOperator_USub_UAdd",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_Invert",
]
OTHERS += ["AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"]
OTHERS += ["NumberReplacer", "ExceptionReplacer", "ZeroIterationForLoop", "ReplaceContinueWithBreak"]
TEXT_CALLS = {"debug", "info", "warning", "warn"}


class RemoveStatement(Operator):
    """Puts ``pass`` for a call whose result is not used, a ``del``, an assignment to an attribute or item."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Where it acts."""
        if node.parent is not None and node.parent.type in ("simple_stmt", "suite") and self._acts(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The statement that takes the place of ``node``."""
        return parso.python.tree.Keyword("pass", node.start_pos, node.get_first_leaf().prefix)

    @staticmethod
    def _acts(node: Any) -> bool:
        if node.type == "del_stmt":
            return True
        if node.type == "expr_stmt":
            target = node.children[0]
            return target.type in ("power", "atom_expr") and not target.get_code().strip().startswith("(")
        call = node.type in ("power", "atom_expr") and node.children[-1].type == "trailer"
        return call and node.children[-1].children[0] == "("

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """For Cosmic Ray's own tests."""
        return (Example("f(x)\n", "pass\n"), Example("a.b = 1\n", "pass\n"))


class ReturnNone(Operator):
    """Returns None for what is returned."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Where it acts."""
        if node.type == "return_stmt" and node.children[1].get_code().strip() != "None":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The statement that takes the place of ``node``."""
        node.children[1] = parso.parse(" None")
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """For Cosmic Ray's own tests."""
        return (Example("def f():\n    return 1\n", "def f():\n    return None\n"),)


@dataclass(frozen=True)
class Mutant:
    """One change of one module. ``occurrence`` counts the places where the operator can act, from 0."""

    path: Path
    line: int
    operator: str
    occurrence: int

    @property
    def text(self) -> str:
        """The whole module with the change made."""
        changed = MutationVisitor.mutate_code(
            self.path.read_text(), operators()[self.operator], self.occurrence
        )
        assert changed is not None, self
        return changed


@functools.cache
def operators() -> dict[str, Operator]:
    """Cosmic Ray's operators that are used, and the two above."""
    names = [f"ReplaceComparisonOperator_{name}" for name in COMPARISONS]
    names += [f"ReplaceBinaryOperator_{name}" for name in ARITHMETIC]
    kept: dict[str, Operator] = {name: plugins.get_operator(f"core/{name}")() for name in names + OTHERS}
    return kept | {"RemoveStatement": RemoveStatement(), "ReturnNone": ReturnNone()}


def mutants(path: Path) -> list[Mutant]:
    """Every change of a module that a test may be asked to notice."""
    excluded = _excluded(ast.parse(path.read_text()))
    seen: Counter[str] = Counter()
    found = []
    for node in _nodes(get_ast(path.read_text())):
        for name, operator in operators().items():
            for start, end in operator.mutation_positions(node):
                if not any(first <= start and end <= last for first, last in excluded):
                    found.append(Mutant(path, start[0], name, seen[name]))
                seen[name] += 1
    return found


def _nodes(node: Any) -> Iterator[Any]:
    """In the order in which Cosmic Ray counts."""
    yield node
    for child in getattr(node, "children", ()):
        yield from _nodes(child)


def _excluded(tree: ast.Module) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """From where to where no change is made."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if _is_text(node):
            nodes.append(node)
        elif isinstance(node, ast.AnnAssign | ast.arg):
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            nodes += [*node.decorator_list, getattr(node, "returns", None)]
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in nodes
        if isinstance(node, ast.expr | ast.stmt | ast.keyword)
    ]


def _is_text(node: ast.AST) -> bool:
    """Tells what speaks to people or to type checkers alone."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return name.rpartition(".")[2] in TEXT_CALLS or name in ("cast", "TypeVar")
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    if isinstance(node, ast.Raise):
        return isinstance(node.exc, ast.Call)
    if isinstance(node, ast.FunctionDef):
        return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.JoinedStr)
