"""``onehop info``: what there is, and why something is missing."""

from collections.abc import Iterator
from typing import Any

from onehop.bench.facts import facts
from onehop.bench.results import write_json
from onehop.cli.console import output
from onehop.cli.options import Json
from onehop.sizes import told
from onehop.tables import PAIR, Table

# Names and what is known of them.
Lines = Iterator[tuple[str, str]]


def info(json: Json = None) -> None:
    """Versions, instruction set, threads, memory, caches, backends, settings and packages."""
    found = facts()
    console = output()
    for title, lines in _TABLES.items():
        console.print(Table(PAIR, list(lines(found)), title))
        console.print()
    if json is not None:
        write_json(json, "info", found)


def _machine(found: dict[str, Any]) -> Lines:
    machine, versions = found["machine"], found["versions"]
    caches = ", ".join(f"{name} {told(size)}" for name, size in machine["caches_bytes"].items())
    threads = (
        "torch's OpenMP found"
        if found["openmp_bound"]
        else "torch's OpenMP not found: kernels use one thread"
    )
    others = [isa for isa in found["isas"] if isa != found["isa"]]
    processor = f"{machine['processor']}, {machine['cores']} cores, {told(machine['memory_bytes'])} memory"
    chosen = f"{found['isa']} ({found['vector_bytes']} bytes a vector)"
    yield "version", versions["onehop"]
    yield "python", versions["python"]
    yield "torch", versions["torch"]
    yield "processor", processor
    yield "caches", caches or "unknown"
    yield "huge pages", machine["huge_pages"] or "unknown"
    yield "instruction set", f"{chosen}; also there: {', '.join(others) or 'none'}"
    yield "threads", f"{found['threads']} ({threads})"
    yield (
        "dropout",
        "onehop's kernels, which draw torch's numbers here"
        if found["dropout_agrees"]
        else "torch's own: with this processor and release it draws other numbers than onehop's kernels",
    )


def _memory(found: dict[str, Any]) -> Lines:
    pool = found["pool"]
    yield "pool of outputs", f"{told(pool['kept_bytes'])} kept of at most {told(pool['limit_bytes'])}"
    keeps = found["settings"]["ONEHOP_KEEP_MEMORY"].get("effective")
    policy = (
        "kept in the process while patched" if keeps else "goes back to the system as the C library decides"
    )
    if not (found["c_library"] or "").startswith("glibc"):
        policy = "goes back to the system as the C library decides: only with glibc can it be kept"
    yield "freed memory", f"{policy} (ONEHOP_KEEP_MEMORY, patch(keep_memory=...))"
    for name, value in found["cache"].items():
        is_size = name.endswith("bytes") and isinstance(value, int)
        yield f"graph cache: {name.replace('_', ' ')}", told(value) if is_size else str(value)


def _backends(found: dict[str, Any]) -> Lines:
    for name, backend in found["backends"].items():
        told, reason = backend["describes"], backend["refuses_cpu_float32"]
        if reason is not None and reason != told:
            told = f"{told}; refuses CPU tensors of float32: {reason}"
        yield name, told


def _products(found: dict[str, Any]) -> Lines:
    found = found["products"]
    if "error" in found:
        yield "libraries", found["error"]
        return
    names = dict.fromkeys(name for each in found["libraries"].values() for name in each)
    yield "libraries", ", ".join(names)
    for chosen in found["chosen"]:
        gain = chosen["gains"].get(chosen["library"])
        than = "" if gain is None else f" ({gain[1]:.2f} times as fast as torch's own)"
        yield chosen["class"], chosen["library"] + than
    if not found["chosen"]:
        yield "measured", "nothing yet; a class of shapes is measured before its first use"


def _packages(found: dict[str, Any]) -> Lines:
    for name, package in found["packages"].items():
        version = found["versions"].get(name) or "there"
        state = version if package["present"] else f"not installed; {package['remedy']}"
        yield name, f"{state} ({package['purpose']})"


def _settings(found: dict[str, Any]) -> Lines:
    for name, setting in found["settings"].items():
        origin = "default" if setting["set_to"] is None else "set"
        yield name, setting.get("error") or f"{setting['effective']} ({origin})"


_TABLES = {
    "onehop": _machine,
    "memory and caches": _memory,
    "backends": _backends,
    "dense products under onehop.patch()": _products,
    "optional packages": _packages,
    "environment variables": _settings,
}
