"""``onehop info``: what there is, and why something is missing."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onehop.bench import tables
from onehop.bench.facts import facts
from onehop.bench.results import write_json
from onehop.cli.console import output
from onehop.cli.options import Json
from onehop.sizes import told


def info(json: Json = None) -> None:
    """Versions, instruction set, threads, memory, caches, backends, settings and packages."""
    found = facts()
    console = output()
    _machine(console, found)
    _memory(console, found)
    _backends(console, found)
    _products(console, found["products"])
    _packages(console, found)
    _settings(console, found)
    if json is not None:
        write_json(json, "info", found)


def _machine(console: Console, found: dict[str, Any]) -> None:
    machine, versions = found["machine"], found["versions"]
    caches = ", ".join(f"{name} {told(size)}" for name, size in machine["caches_bytes"].items())
    threads = (
        "torch's OpenMP found"
        if found["openmp_bound"]
        else "torch's OpenMP not found: kernels use one thread"
    )
    others = [isa for isa in found["isas"] if isa != found["isa"]]
    table = _pairs("onehop")
    _row(table, "version", versions["onehop"])
    _row(table, "python", versions["python"])
    _row(table, "torch", versions["torch"])
    _row(
        table,
        "processor",
        f"{machine['processor']}, {machine['cores']} cores, {told(machine['memory_bytes'])} memory",
    )
    _row(table, "caches", caches or "unknown")
    _row(table, "huge pages", machine["huge_pages"] or "unknown")
    chosen = f"{found['isa']} ({found['vector_bytes']} bytes a vector)"
    _row(table, "instruction set", f"{chosen}; also there: {', '.join(others) or 'none'}")
    _row(table, "threads", f"{found['threads']} ({threads})")
    dropout = (
        "onehop's kernels, which draw torch's numbers here"
        if found["dropout_agrees"]
        else "torch's own: with this processor and release it draws other numbers than onehop's kernels"
    )
    _row(table, "dropout", dropout)
    _show(console, table)


def _memory(console: Console, found: dict[str, Any]) -> None:
    pool = found["pool"]
    table = _pairs("memory and caches")
    _row(table, "pool of outputs", f"{told(pool['kept_bytes'])} kept of at most {told(pool['limit_bytes'])}")
    keeps = found["settings"]["ONEHOP_KEEP_MEMORY"].get("effective")
    policy = (
        "kept in the process while patched" if keeps else "goes back to the system as the C library decides"
    )
    if not (found["c_library"] or "").startswith("glibc"):
        policy = "goes back to the system as the C library decides: only with glibc can it be kept"
    _row(table, "freed memory", f"{policy} (ONEHOP_KEEP_MEMORY, patch(keep_memory=...))")
    for name, value in found["cache"].items():
        is_size = name.endswith("bytes") and isinstance(value, int)
        _row(table, f"graph cache: {name.replace('_', ' ')}", told(value) if is_size else str(value))
    _show(console, table)


def _backends(console: Console, found: dict[str, Any]) -> None:
    table = _pairs("backends")
    for name, backend in found["backends"].items():
        told, reason = backend["describes"], backend["refuses_cpu_float32"]
        if reason is not None and reason != told:
            told = f"{told}; refuses CPU tensors of float32: {reason}"
        _row(table, name, told)
    _show(console, table)


def _products(console: Console, found: dict[str, Any]) -> None:
    table = _pairs("dense products under onehop.patch()")
    if "error" in found:
        _row(table, "libraries", found["error"])
    else:
        names = dict.fromkeys(name for each in found["libraries"].values() for name in each)
        _row(table, "libraries", ", ".join(names))
        for chosen in found["chosen"]:
            gain = chosen["gains"].get(chosen["library"])
            than = "" if gain is None else f" ({gain[1]:.2f} times as fast as torch's own)"
            _row(table, chosen["class"], chosen["library"] + than)
        if not found["chosen"]:
            _row(table, "measured", "nothing yet; a class of shapes is measured before its first use")
    _show(console, table)


def _packages(console: Console, found: dict[str, Any]) -> None:
    table = _pairs("optional packages")
    for name, package in found["packages"].items():
        version = found["versions"].get(name) or "there"
        state = version if package["present"] else f"not installed; {package['remedy']}"
        _row(table, name, f"{state} ({package['purpose']})")
    _show(console, table)


def _settings(console: Console, found: dict[str, Any]) -> None:
    table = _pairs("environment variables")
    for name, setting in found["settings"].items():
        origin = "default" if setting["set_to"] is None else "set"
        _row(table, name, setting.get("error") or f"{setting['effective']} ({origin})")
    _show(console, table)


def _show(console: Console, table: Table) -> None:
    console.print(table)
    console.print()


def _pairs(title: str) -> Table:
    table = tables.table(title, headings=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _row(table: Table, name: str, value: str) -> None:
    table.add_row(Text(name), Text(value))  # Text: what stands in brackets is no markup
