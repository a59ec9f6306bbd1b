"""``onehop.explain()``: which layers of a model take the fast path, and why the others do not."""

import copy
import functools
import html
import importlib.metadata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from onehop import config
from onehop.errors import ArgumentError, ConfigurationError
from onehop.integrations import reports
from onehop.integrations.patch import holding, patched, silence
from onehop.integrations.rows import counted
from onehop.loading import imported
from onehop.ops.contexts import as_in_program
from onehop.tables import Table, titled

_COMPILED = "_orig_mod"
_COLUMNS = 100
_LONGEST_NAME = 28
_HEADINGS = ("layer", "class", "calls", "path")
_CUT = "…"


@functools.cache
def reasons_page() -> str:
    """Return the location of the page that explains every reason: its URL, or its file in a checkout."""
    urls = importlib.metadata.metadata("onehop").get_all("Project-URL") or []
    named: dict[str, str] = dict(url.split(", ", 1) for url in urls)
    return named.get("Reasons", "docs/reference/reasons.md")


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One layer in an explanation, with one way in which it ran.

    Attributes:
        name: The layer's name in the model; empty for the model itself.
        kind: The name of the layer's class.
        calls: Number of propagations that ran this way.
        reason: Why the framework's own code ran; None if the fast path did.
        form: What the fast path computed.
        reduce: "sum", "mean", "max" or "min".
        backend: The name of the backend that ran it.
        plan: The plan that it ran with.
        program: The steps of a compiled message, one a line; empty for any other.
        framework: The name of the framework that the class belongs to, such as "PyG" or "DGL".
    """

    name: str
    kind: str
    calls: int
    reason: str | None
    form: str
    reduce: str
    backend: str
    plan: str
    program: str
    framework: str = "PyG"

    @property
    def fast(self) -> bool:
        """Return whether the layer took the fast path."""
        return self.reason is None

    @property
    def path(self) -> str:
        """The path: "fast", "in blocks", or whose own code ran, such as "PyG's"."""
        if self.reason is not None:
            return f"{self.framework}'s"
        return "in blocks" if self.form == reports.IN_BLOCKS else "fast"

    @property
    def text(self) -> str:
        """The path, followed by what is fused or why it is not fast."""
        if self.reason is not None:
            return f"{self.path}: {self.reason}"
        if self.form == reports.IN_BLOCKS:
            return f"{self.path}: {self.reduce}, {self.plan}"
        return f"{self.path}: {self.reduce} of {self.form}"


def reasons_line(rows: Iterable[LayerReport]) -> list[str]:
    """Return the line that names the page of reasons; an empty list if all rows are fast."""
    any_left = any(row.path != "fast" for row in rows)
    return [f"Each reason, and what can be done: {reasons_page()}"] if any_left else []


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """A function of torch or PyG that the patch replaces, outside of layers' messages.

    Attributes:
        name: The function's name, such as "index_select"; "x[index]" for indexing.
        served: Number of calls that onehop ran.
        left: Number of calls that were large enough for onehop, but that torch or PyG ran.
    """

    name: str
    served: int
    left: int

    @property
    def text(self) -> str:
        """The counts in words, such as "3 of 4 calls fast"."""
        calls = self.served + self.left
        return f"{self.served:,} of {calls:,} call{'' if calls == 1 else 's'} fast"


def function_reports(counter: Mapping[tuple[str, bool], int]) -> tuple[FunctionReport, ...]:
    """Return the functions that :func:`.counted` counted, the most called ones first."""
    names = sorted(
        {name for name, _ in counter}, key=lambda name: -sum(counter[name, ours] for ours in (True, False))
    )
    return tuple(FunctionReport(name, counter[name, True], counter[name, False]) for name in names)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of :func:`explain`: a row for each layer and each way in which it ran.

    It prints as a table of at most 100 characters a line. Notebooks show it as an HTML table with the full
    text.

    Attributes:
        layers: The rows, in the order in which the layers ran; layers that never reached the patch come last.
        functions: The replaced functions of torch and PyG that ran, inside and outside of layers.
        verbose: Whether to print plans, programs of compiled messages, and functions without a fast call
            below the table, and not to shorten the table's text.

    Examples:
        >>> import onehop, torch
        >>> from torch_geometric.nn import SAGEConv
        >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 0, 1], [1, 2, 2]])
        >>> explanation = onehop.explain(SAGEConv(2, 4, aggr="lstm"), x, edge_index)
        >>> [(layer.kind, layer.fast, layer.reason) for layer in explanation.layers]
        [('SAGEConv', False, 'its aggregation is LSTMAggregation, which onehop does not know')]
    """

    layers: tuple[LayerReport, ...]
    verbose: bool = False
    functions: tuple[FunctionReport, ...] = ()

    def __str__(self) -> str:
        """The table, followed by plans and programs if ``verbose``."""
        if not self.layers:
            return "\n".join(["The model has no layers of PyG, DGL, MACE or NequIP.", *self._functions()])
        longest = None if self.verbose else _LONGEST_NAME
        rows = [(_shortened(_named(row), longest), row.kind, str(row.calls), row.text) for row in self.layers]
        widths = [max(len(row[i]) for row in (_HEADINGS, *rows)) for i in range(3)]
        lines = [_line(row, widths) for row in (_HEADINGS, *rows)]
        if not self.verbose:
            lines = [_shortened(line, _COLUMNS) for line in lines]
        lines.insert(1, "-" * max(len(line) for line in lines))
        return "\n".join([*lines, *self._reasons(), *self._functions(), *self._details()])

    def _reasons(self) -> list[str]:
        return ["", *line] if (line := reasons_line(self.layers)) else []

    def _functions(self) -> list[str]:
        shown = [f"{row.name}: {row.text}" for row in self.functions if row.served or self.verbose]
        return ["", *shown] if shown else []

    def _details(self) -> list[str]:
        lines: list[str] = []
        for row in self.layers if self.verbose else ():
            if row.fast:
                lines += ["", f"{_named(row)}, on {row.backend}: {row.plan}"]
            if row.program:
                lines += ["each message:", *row.program.splitlines()]
        return lines

    def _repr_html_(self) -> str:
        """The table as notebooks show it."""
        if not self.layers:
            return f"<p>{html.escape(str(self))}</p>"
        cells = [(_named(row), row.kind, str(row.calls), row.text) for row in self.layers]
        table = Table(titled(_HEADINGS, len(_HEADINGS)), cells)
        return table._repr_html_() + "".join(
            f"<pre>{html.escape(line)}</pre>"
            for line in [*self._reasons(), *self._functions(), *self._details()]
            if line
        )


def explain(model: torch.nn.Module, *inputs: Any, verbose: bool = False, **kwargs: Any) -> Explanation:
    """Run a copy of the model once and report how each layer ran.

    Neither the model nor torch's random state changes. The copy runs in the caller's gradient mode: inside
    ``torch.no_grad()``, the report is about inference. Without a patch in place, it shows what
    :func:`onehop.patch` would do. For modules that ``torch.compile`` compiled, it shows what the compiled
    program runs.

    Args:
        model: A module with layers of PyG or DGL.
        *inputs: Positional arguments of the model.
        verbose: Whether to also print plans and the programs of compiled messages, and reasons in full.
        **kwargs: Keyword arguments of the model.

    Raises:
        ArgumentError: ``model`` is not a ``torch.nn.Module``.
        ConfigurationError: ``ONEHOP_DISABLE=1`` forbids the patch.

    Examples:
        >>> import onehop, torch
        >>> from torch_geometric.nn import GraphSAGE
        >>> model, x = GraphSAGE(2, 4, num_layers=2), torch.ones(3, 2)
        >>> edge_index = torch.tensor([[0, 0, 1], [1, 2, 2]])
        >>> print(onehop.explain(model, x, edge_index))
        layer    class     calls  path
        ----------------------------------------------
        convs.0  SAGEConv  1      fast: mean of source
        convs.1  SAGEConv  1      fast: mean of source
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"model: expected a torch.nn.Module, got {type(model).__name__}.")
    if not patched() and config.disabled():
        raise ConfigurationError(
            "ONEHOP_DISABLE=1: nothing is patched, so there is nothing to explain; unset it."
        )
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        # Copying a layer may draw random numbers too: some are constructed again and then filled.
        duplicate = copy.deepcopy(model)
        duplicate = _opened(model, duplicate)
        names = {
            id(module): ".".join(part for part in name.split(".") if part != _COMPILED)
            for name, module in duplicate.named_modules()
        }
        with holding(), reports.recorded() as calls, counted() as functions:
            duplicate(*inputs, **kwargs)
            heard = {id(call.layer) for call in calls}
            silent = [(m, silence(m)) for m in duplicate.modules() if id(m) not in heard]
            calls.extend(reports.Call(module, reason) for module, reason in silent if reason is not None)
    return Explanation(tuple(_rows(calls, names)), verbose, function_reports(functions))


class _InProgram(torch.nn.Module):
    """Runs a compiled module as its compiled program would, without compiling it again."""

    def __init__(self, compiled: torch.nn.Module) -> None:
        super().__init__()
        self.add_module(_COMPILED, compiled)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs the module as inside a compiled program."""
        with as_in_program():
            return self.get_submodule(_COMPILED)(*inputs, **kwargs)


def _opened(model: torch.nn.Module, duplicate: torch.nn.Module) -> torch.nn.Module:
    """Return the duplicate; modules that are compiled in the model run in it as in a compiled program."""
    if imported("torch._dynamo") is None:  # Its import takes a second, and nothing is compiled.
        return duplicate
    from torch._dynamo import OptimizedModule

    # A copy does not show that a module was compiled by module.compile().
    compiled = [
        isinstance(module, OptimizedModule) or module._compiled_call_impl is not None
        for module in model.modules()
    ]
    for is_compiled, (name, module) in zip(compiled, list(duplicate.named_modules()), strict=True):
        if not is_compiled:
            continue
        opened = _InProgram(module._orig_mod if isinstance(module, OptimizedModule) else module)
        if not name:
            return opened
        parent, _, child = name.rpartition(".")
        setattr(duplicate.get_submodule(parent), child, opened)
    return duplicate


def _rows(calls: list[reports.Call], names: dict[int, str]) -> Iterable[LayerReport]:
    counted: dict[tuple[Any, ...], int] = {}
    for call in calls:
        name = names.get(id(call.layer), "(made while running)")
        how = call.form, call.reduce, call.backend, call.plan, call.program
        key = (name, type(call.layer).__name__, call.reason, *how, reports.framework_of(call.layer))
        counted[key] = counted.get(key, 0) + 1
    for (name, kind, *rest), number in counted.items():
        yield LayerReport(name, kind, number, *rest)


def _named(row: LayerReport) -> str:
    return row.name or "(model)"


def _shortened(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else text[: longest - 1] + _CUT


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, cells[-1]])
