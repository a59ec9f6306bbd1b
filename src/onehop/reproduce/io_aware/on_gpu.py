"""The paper's headline times: open, unless the results of ``make gpu`` on a machine with DGL are given."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from onehop.bench.stamp import stamp
from onehop.errors import ArgumentError
from onehop.machines.common.files import text_of
from onehop.reproduce.intervals import BASE, OUR_CHOICE, Unknown, decides, interval
from onehop.reproduce.tables import Row, row

_FORWARD = "the forward pass alone"
_PASSES = Unknown(
    "the passes that a speed-up is of",
    "forward and backward",
    (_FORWARD,),
    f"{OUR_CHOICE}: the paper's headlines are smaller than its largest forward cells",
    "the paper's cells of forward and backward",
)
# Published speed-ups have one decimal.
_PLACE = 0.1
_DTYPE, _OTHER = "float32", "dgl"
_COMMAND, _FILE = "make gpu", "build/gpu/gpu.json"


class Headline(NamedTuple):
    """A published speed-up over DGL, on an A100.

    Attributes:
        figure: The figure's name.
        paper: The published value.
        operators: The benchmark's operators that it is of; the first that was measured counts.
        ours: The benchmark's name of ours; empty if onehop has no such kernel.
    """

    figure: str
    paper: float
    operators: tuple[str, ...]
    ours: str = "onehop"


HEADLINES = (
    Headline("GATv2 over DGL, best", 8.5, ("gatv2",)),
    Headline("GATv2 over DGL, median", 2.0, ("gatv2",)),
    Headline("Graph Transformer, fused over DGL, best", 3.9, ("attention",)),
    Headline("Graph Transformer, fused over DGL, median", 1.6, ("attention",)),
    Headline("Graph Transformer, tensor cores over DGL, best", 7.3, ("attention",), ""),
    # The kernels of max and min differ in a comparison.
    Headline("min over DGL, best", 10.0, ("min", "max")),
    Headline("min over DGL, median", 2.6, ("min", "max")),
    Headline("cached sparse products over DGL, best", 8.0, ("sum",), "torch-csr-kept"),
)


def results(path: Path) -> dict[str, Any]:
    """Return the results of ``make gpu`` from its file, build/gpu/gpu.json.

    Raises:
        OSError: The file cannot be read.
        ArgumentError: The file is not a result of ``make gpu``.
    """
    text = text_of(path, ArgumentError)
    try:
        content = json.loads(text)
        cases = content["cases"]
        _checked(cases)
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"gpu: {path}: expected results of {_COMMAND}, got {error!r}.") from error
    return dict(content)


def _checked(cases: Sequence[Mapping[str, Any]]) -> None:
    """Raise unless the cases have what :func:`headlines` reads."""
    for case in cases:
        _ = case["operator"], case["dtype"], case["graph"]
        for peer in case["peers"]:
            for passes in ("forward", "forward_and_backward"):
                if peer[passes] is not None:
                    float(peer[passes]["median_s"])


def headlines(measured: Mapping[str, Any] | None = None) -> list[Row]:
    """Return the paper's headline times, and ours if they were measured.

    Args:
        measured: The results of :func:`results`; None if there are none.
    """
    return [_row(each, measured) for each in HEADLINES]


def _row(one: Headline, measured: Mapping[str, Any] | None) -> Row:
    if not one.ours:
        note = "onehop has no kernel for tensor cores, so nothing measures this."
        return row(one.figure, "x", note, paper=one.paper, headline=True)
    if measured is None:
        note = (
            f"Needs a GPU and DGL: `{_COMMAND}`, then `onehop reproduce io-aware --gpu build/gpu/gpu.json`."
        )
        return row(one.figure, "x", note, paper=one.paper, headline=True)
    for operator in one.operators:
        cases = [
            case
            for case in measured["cases"]
            if (case["operator"], case["dtype"]) == (operator, _DTYPE) and not case.get("wrong")
        ]
        both, forward = (
            [ratio for case in cases if (ratio := _speedup(case, one.ours, passes)) is not None]
            for passes in ("forward_and_backward", "forward")
        )
        if both and forward:
            return _measured_row(one, operator, (both, forward), measured)
    note = (
        f"{_source(measured)} has no case of {' or '.join(one.operators)} with DGL{_reason(one, measured)}."
    )
    return row(one.figure, "x", note, paper=one.paper, headline=True)


def _measured_row(
    one: Headline, operator: str, ratios: tuple[list[float], list[float]], measured: Mapping[str, Any]
) -> Row:
    both, forward = ratios
    over = max if one.figure.endswith("best") else median
    spanned = interval({BASE: float(over(both)), frozenset({_FORWARD}): float(over(forward))})
    note = (
        f"{len(both)} cases of {operator} in {_DTYPE} on generated graphs, on "
        f"{measured.get('gpu', 'a GPU')}; the paper's GPU is an A100. {_source(measured)}."
    )
    return row(
        one.figure,
        "x",
        note,
        spanned,
        one.paper,
        headline=True,
        place=_PLACE,
        decides=decides(spanned, (_PASSES,)),
        unknowns=(_PASSES,),
    )


def _source(measured: Mapping[str, Any]) -> str:
    """Return the date, the commit and the versions of the run that measured, and how it differs from here."""
    of_run, here = measured.get("stamp", {}), stamp()
    versions = of_run.get("versions", {})
    differs = [
        name
        for name, there, value in (
            ("commit", of_run.get("commit"), here.get("commit")),
            ("version", versions.get("onehop"), here["versions"]["onehop"]),
            ("host", of_run.get("machine", {}).get("processor"), here["machine"]["processor"]),
        )
        if there != value
    ]
    other = f", of another {' and another '.join(differs)} than here" if differs else ""
    return (
        f"The run of {str(of_run.get('date', 'an unknown date'))[:10]}{other} (commit "
        f"{of_run.get('commit') or 'unknown'}, onehop {versions.get('onehop') or 'unknown'}, DGL "
        f"{versions.get('dgl') or 'not installed'})"
    )


def _reason(one: Headline, measured: Mapping[str, Any]) -> str:
    """Return why DGL has no times, as the run says it; empty if it does not."""
    for case in measured["cases"]:
        if case["operator"] in one.operators:
            for peer in case["peers"]:
                if peer["peer"] == _OTHER and (said := peer.get("absent") or peer.get("failed")):
                    return f": {said}"
    return ""


def _speedup(case: Mapping[str, Any], ours: str, passes: str) -> float | None:
    """Return DGL's median divided by ours; None if one of them has no time."""
    seconds = {
        peer["peer"]: float(peer[passes]["median_s"]) for peer in case["peers"] if peer[passes] is not None
    }
    if _OTHER not in seconds or not seconds.get(ours):
        return None
    return seconds[_OTHER] / seconds[ours]
