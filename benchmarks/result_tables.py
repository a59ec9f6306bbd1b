"""Tables of what was measured, in Markdown."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import columns
from benchmarks.columns import milliseconds, ratio
from onehop.bench.floors import PARTS
from onehop.bench.timing import LEAST_FOR_QUARTILES, geometric_mean, quantile
from onehop.sizes import mebibytes
from onehop.tables import Column, Table

# As fast as PyG, within what repeated measurements differ by.
EVEN = 0.97
PYG, OURS = "pyg-edge_index", "onehop"
TITLES = {
    "ogb-gcn": "OGB's GCN",
    "ogb-sage": "OGB's GraphSAGE",
    "ogb-gat": "OGB's GAT",
    "loader-sage": "GraphSAGE in mini-batches",
    "products-gcn": "OGB's GCN",
    "products-sage": "OGB's GraphSAGE",
    "cora-gcn": "PyG's gcn.py",
    "cora-gat": "PyG's gat.py",
}
"""The published models in words."""
INPUTS = {
    PYG: "`edge_index`",
    "pyg-torch-csr": "`adj_t` of torch",
    "pyg-SparseTensor": "`adj_t` of torch_sparse",
    "pyg-compiled": "`torch.compile`",
}
"""What PyG's users can choose, in words."""
# The most edges of a graph that the README calls small.
_SMALL = 500
FIRST = ("products-gcn", "ogb-gcn", "ogb-gat")
"""Models whose figures open the README."""

Document = dict[str, Any]

BOTH = columns.of(
    "speed-up (quartiles) | spread | gain; PyG, peak MiB | peaks/0 | MiB; "
    "with onehop, peak MiB | peaks/1 | MiB"
)


def markdown(shown: Sequence[Column], rows: Iterable[Any]) -> str:
    """A Markdown table."""
    return Table(shown, list(rows)).markdown()


def machine(stamp: Document) -> str:
    """Where and when it was measured, as a sentence."""
    versions = stamp["versions"]
    libraries = ", ".join(
        f"{label} {versions[package]}"
        for package, label in (("torch", "torch"), ("torch_geometric", "PyG"), ("scipy", "SciPy"))
        if versions.get(package)
    )
    return (
        f"Measured on {stamp['date'][:10]}{at_commit(stamp)}: {stamp['machine']['processor']}, "
        f"{stamp['threads']} threads, {stamp['isa']}, {libraries}. Medians; float32."
    )


def at_commit(stamp: Document) -> str:
    """The commit of what was measured, as words behind a date; nothing where none is known."""
    commit = stamp.get("commit")
    if commit is None:
        return ""
    return f" at commit {commit['hash'][:8]}{' with changes' if commit['changed'] else ''}"


def machine_line(stamp: Document) -> str:
    """The machine in a line, for pictures."""
    return f"{stamp['machine']['processor']}, {stamp['threads']} threads, {stamp['isa']}"


def rounds_of(document: Document, key: str = "times") -> str:
    """How often each way was timed, as a sentence; a result has the times under this key."""
    counts = {times["rounds"] for result in document["results"] for times in result[key].values()}
    least, most = min(counts), max(counts)
    text = str(least) if least == most else f"{least} to {most}"
    plural = "" if most == 1 else "s"
    quartiles = "" if least >= LEAST_FOR_QUARTILES else ", too few for quartiles"
    return f"{text} round{plural}{quartiles}."


def models_table(document: Document) -> str:
    """A line for every model: an epoch of each input of PyG, patched, and the ratios."""
    rows = [
        {
            **result,
            "title": title(result),
            "pyg": milliseconds(result["times"][PYG]["median_s"])
            if PYG in result["times"]
            else result["skipped"].get(PYG),
            "authors": _time(result, result.get("as_authors")),
            "best": _named_time(result, result.get("best_of_pyg")),
            "spread": _spread(result, PYG),
            "over_best": _spread(result, result.get("best_of_pyg")),
            "peaks": [result["peak_bytes"].get(way) for way in (PYG, OURS)],
        }
        for result in document["results"]
        if OURS in result["times"]
    ]
    text = (
        "graph; model; hidden | hidden | {}; PyG with `edge_index`, ms | pyg | {}; "
        "as its authors call it, ms | authors | {}; PyG's best, ms | best | {}; "
        "with onehop, ms | times/onehop/median_s | three; over PyG's best | over_best | gain; "
        "over `edge_index` | spread | gain; PyG, peak MiB | peaks/0 | MiB; "
        "with onehop, peak MiB | peaks/1 | MiB"
    )
    return markdown(columns.of(text), rows)


def _time(result: Document, way: str | None) -> str | None:
    return None if way is None else milliseconds(result["times"][way]["median_s"])


def _named_time(result: Document, way: str | None) -> str | None:
    return None if way is None else f"{_time(result, way)} ({INPUTS[way]})"


def _spread(result: Document, over: str | None) -> Document | None:
    """Onehop's gain over one of PyG's ways, with its rounds."""
    if over not in result["speedup_over"]:
        return None
    return {**result["speedup_over"][over], "rounds": result["times"][over]["rounds"]}


def short_models_table(document: Document) -> str:
    """A line for every published model: an epoch of each input of PyG and patched, the gains, and memory."""
    rows = [
        {
            **result,
            "title": title(result),
            "authors": _time(result, result.get("as_authors")),
            "best": _named_time(result, best),
            "gain": result["speedup_over"][best]["median"],
            "times": [milliseconds(result["times"][way]["median_s"]) for way in (PYG, OURS)],
            "peaks": " / ".join(mebibytes(result["peak_bytes"][way]) for way in (PYG, best, OURS)),
        }
        for result in document["results"]
        if (best := result.get("best_of_pyg")) and PYG in result["speedup_over"]
    ]
    text = (
        "model | title; graph; PyG with `edge_index`, ms | times/0 | {}; "
        "as its authors call it, ms | authors | {}; "
        "PyG's best, ms | best | {}; onehop, ms | times/1 | {}; gain over the best | gain | x; "
        "peak memory of these three, MiB | peaks | {}"
    )
    return markdown(columns.of(text), rows)


def title(result: Document) -> str:
    """A model's name in words."""
    return TITLES.get(result["model"], result["model"])


def graph(result: Document) -> str:
    """A graph in words, which say whether it was generated."""
    name: str = result["graph"]
    like, _, scale = name.removeprefix("twin:").partition(" x ")
    times = f"{scale} times " if scale else ""
    return f"a generated graph of {times}the size of {like}" if name.startswith("twin:") else name


def first_figures(document: Document) -> str:
    """Three figures, an item each: the gains, time and memory of an epoch."""
    of_models = {result["model"]: result for result in document["results"] if PYG in result["speedup_over"]}
    items = []
    for model in FIRST:
        if model not in of_models:
            continue
        result = of_models[model]
        best, over = result["best_of_pyg"], result["speedup_over"]
        ways = dict.fromkeys((best, PYG))
        plain = "" if best == PYG else f", {over[PYG]['median']:.1f} times as fast as with {INPUTS[PYG]}"
        seconds = {way: f"{result['times'][way]['median_s']:.2f}" for way in (*ways, OURS)}
        sizes = {way: f"{result['peak_bytes'][way] / 2**30:.1f}" for way in (*ways, OURS)}
        items.append(
            f"- **{over[best]['median']:.1f} times as fast** as PyG's fastest input ({INPUTS[best]}){plain}: "
            f"{title(result)} on {graph(result)}, {seconds[OURS]} s an epoch instead of "
            f"{' and '.join(seconds[way] for way in ways)} s, {sizes[OURS]} GiB at the peak instead of "
            f"{' and '.join(sizes[way] for way in ways)}."
        )
    return "\n".join(items)


def parts_table(document: Document) -> str:
    """A line for every published model: where its patched epoch goes, and how far it is from its floor."""

    def cell(part: str) -> Column:
        return Column(part, lambda row: _part(row["breakdown"], part))

    shown = columns.of("graph; model; epoch over its floor | breakdown/x_of_floor | x")
    rows = [result for result in document["results"] if result.get("breakdown")]
    return markdown([*shown, *map(cell, PARTS)], rows)


def _part(found: Document, part: str) -> str:
    """A part's milliseconds, its share of the epoch, and how many times its floor it is."""
    seconds, floor = found["seconds"][part], found["floor_s"]
    text = f"{milliseconds(seconds)} ms, {100 * found['shares'][part]:.0f} %"
    return f"{text}, {ratio(seconds / floor[part])}" if floor and floor[part] else text


def layers_table(document: Document) -> str:
    """A line for every layer: time and memory beside PyG, and the operator's share of the roof."""
    return markdown(
        columns.of(
            "graph; layer; PyG, ms | seconds/pyg | three; with onehop, ms | seconds/onehop | three; "
            "over PyG | speedup/pyg | x; over DGL | speedup/dgl | x; "
            "peak memory, of PyG's | memory_ratio | 1/{:.1f}; "
            "share of the roof | percent_of_roof/forward and backward | {:.0f} %"
        ),
        (result for result in document["results"] if not result.get("wrong", False)),
    )


def ops_table(document: Document) -> str:
    """A line for every operation, over all graphs and widths."""
    rows = [
        {
            **summary,
            "operation": summary["operation"].replace("_", " "),
            "worst": f"{ratio(summary['worst'])} ({summary['worst_case']})",
        }
        for summary in document["summary"]
    ]
    return markdown(
        columns.of(
            "operation; cases | cases | {}; over the best peer | best_peer_geomean | x; "
            "over torch's sparse CSR | torch_geomean | x; worst case against any peer | worst | {}; "
            "least share of the roof | least_percent_of_roof | {:.0f} %"
        ),
        rows,
    )


def limits_sentence(document: Document) -> str:
    """The memory limits, as a sentence."""
    gathers = ", ".join(f"{g['gbps']:.1f} at {g['row_floats']}" for g in document["gather"])
    return (
        f"Memory limits of this machine: {document['streaming']['read']['gbps']:.1f} GB/s for reading in "
        f"order; for reading random rows, the roof of aggregation, by floats a row: {gathers} GB/s."
    )


def examples_sentence(document: Document) -> str:
    """How many scripts of PyG there are of each kind, and how many take more memory."""
    kinds = Counter(result["verdict"] for result in document["scripts"])
    total = sum(kinds.values())
    text = f"{total} scripts ({', '.join(f'{kind}: {count}' for kind, count in kinds.most_common())})."
    ran = [result for result in document["scripts"] if not result["failed"]]
    more = [result["peak_bytes"]["onehop"] - result["peak_bytes"]["pyg"] for result in ran]
    before = [result["before_bytes"]["onehop"] - result["before_bytes"]["pyg"] for result in ran]
    if (higher := [size for size in more if size > 0]) and (own := quantile(before, 0.5)) > 0:
        text += (
            f" The peak is higher with onehop in {len(higher)}, by at most {mebibytes(max(higher))} MiB; the "
            f"library itself takes {mebibytes(own)} MiB before the first epoch."
        )
    return text


def examples_table(document: Document) -> str:
    """A line for every example script of PyG that ran both ways."""
    rows = [
        {
            **result,
            "script": f"`{result['script']}`",
            "spread": {**result["speedup"], "rounds": result["times"][OURS]["rounds"]},
            "peaks": [result["peak_bytes"][way] for way in ("pyg", "onehop")],
        }
        for result in document["scripts"]
        if not result["failed"] and "speedup" in result
    ]
    text = (
        "script; with onehop | verdict; PyG, ms | times/pyg/median_s | three; "
        "with onehop, ms | times/onehop/median_s | three"
    )
    return markdown([*columns.of(text), *BOTH], rows)


def sparse_steps_table(document: Document) -> str:
    """A line for every model without layers: its training step, and the peaks of the process."""
    return markdown(
        columns.of(
            "model | case; torch, ms | seconds/torch/median_s | three; "
            "torch_sparse, ms | seconds/torch_sparse/median_s | three; "
            "onehop, ms | seconds/onehop/median_s | three; faster | speedup | gain speedup_quartiles; "
            "torch, peak MiB | peak_bytes/torch | MiB; onehop, peak MiB | peak_bytes/onehop | MiB"
        ),
        [row for row in document["results"] if row["part"] == "steps"],
    )


def sparse_products_table(document: Document) -> str:
    """A line for every product with a sparse matrix of torch's, and for each of its passes."""
    return markdown(
        columns.of(
            "product | case; pass; torch, ms | seconds/torch/median_s | three; "
            "torch_sparse, ms | seconds/torch_sparse/median_s | three; "
            "onehop, ms | seconds/onehop/median_s | three; faster | speedup | gain speedup_quartiles; "
            "over `onehop.aggregate` | over_aggregate | {:.2f}"
        ),
        [row for row in document["results"] if row["part"] == "products"],
    )


def potentials_table(rows: list[dict[str, Any]]) -> str:
    """A line for every interatomic potential and pass."""
    return markdown(
        columns.of(
            "potential; step | pass; atoms; its own code, ms | seconds/theirs/median_s | three; "
            "onehop, ms | seconds/onehop/median_s | three; faster | speedup | gain speedup_quartiles; "
            "its own, peak MiB | peak_bytes/theirs | MiB; onehop, peak MiB | peak_bytes/onehop | MiB"
        ),
        rows,
    )


def small_sentence(document: Document) -> str:
    """What the layers gain on the smallest graphs."""
    ratios = sorted(case["ratio"] for case in document["cases"] if case["edges"] <= _SMALL)
    slower = sum(each < EVEN for each in ratios) / len(ratios)
    return (
        f"On graphs of at most {_SMALL} edges, a layer gains {ratio(quantile(ratios, 0.5))} in the median; "
        f"{100 * slower:.0f} % of the cases are slower than with PyG, the slowest {ratio(ratios[0])} "
        "([small graphs](docs/results.md#layers))."
    )


def small_table(document: Document) -> str:
    """A line for every size: how the layers of small graphs fare."""
    rows = []
    for edges in dict.fromkeys(case["edges"] for case in document["cases"]):
        cases = [case for case in document["cases"] if case["edges"] == edges]
        least = min(cases, key=lambda case: case["ratio"])
        where = ", ".join(least[key] for key in ("layer", "edge_index", "pass"))
        even = {
            kind: 100 * sum(case[kind] >= EVEN for case in cases) / len(cases)
            for kind in ("ratio", "control")
        }
        rows.append(
            {
                "edges": edges,
                "cases": len(cases),
                "mean": geometric_mean([case["ratio"] for case in cases]),
                "even": even,
                "least": f"{ratio(least['ratio'])} ({where})",
            }
        )
    return markdown(
        columns.of(
            "edges | edges | {:,}; cases | cases | {}; over PyG | mean | x; "
            f"at least {EVEN}x | even/ratio | {{:.0f}} %; "
            f"PyG over itself at least {EVEN}x | even/control | {{:.0f}} %; least | least | {{}}"
        ),
        rows,
    )
