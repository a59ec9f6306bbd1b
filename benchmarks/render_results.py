"""Puts what was measured into README.md and docs/results.md, between their markers, and draws the pictures.

    python -m benchmarks.render_results

Reads benchmarks/results/NAME.json, which the steps of ``make bench`` write (``steps.py``). Sections of what
has not been measured yet are left out, but for :data:`NEEDED`.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.pages import ROOT, replace_between
from benchmarks.result_pictures import draw, draw_each
from benchmarks.result_tables import (
    Document,
    examples_sentence,
    examples_table,
    first_figures,
    layers_table,
    limits_sentence,
    machine,
    machine_line,
    models_table,
    ops_table,
    parts_table,
    potentials_table,
    rounds_of,
    short_models_table,
    small_sentence,
    small_table,
    sparse_products_table,
    sparse_steps_table,
)
from onehop.bench.plots import plot_parts

PUBLISHED = "published_models"
NEEDED = ("ops", "models", "limits", "layers")
POTENTIALS = ("potentials_mace", "potentials_nequip", "potentials_torch")
POTENTIALS_PAGE = "docs/howto/potentials.md"
MORE = (PUBLISHED, "small", "sparse", "examples")


def read(folder: Path, name: str) -> Document:
    """One of the result files.

    Raises:
        SystemExit: It has not been measured yet.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing: run make bench first.")
    document: Document = json.loads(path.read_text())
    return document


def figures_section(document: Document, small: Document | None) -> str:
    """What the published models reach, what layers of small graphs do, and under which conditions."""
    note = (
        f"Epochs of each way in turns, in one process; {rounds_of(document)} The losses of the first "
        "epochs are equal. A twin is [a generated graph](docs/reference/datasets.md) with the size and the "
        "degrees of the named one, x 0.02 a fiftieth of it. Memory is what an epoch adds to a process at its "
        "peak."
    )
    figures = first_figures(document) + ("" if small is None else f"\n- {small_sentence(small)}")
    return f"{figures}\n\n<sub>{machine(document['stamp'])} {note}</sub>"


def published_section(document: Document) -> list[str]:
    """What the published models reach, and where the time goes."""
    return [
        "## Published models",
        machine(document["stamp"]),
        "One training epoch of models as their authors train them, with batch normalisation and dropout; the "
        f"losses of the first epochs equal PyG's ([the models](howto/benchmark.md)); {rounds_of(document)} "
        "PyG's best is the fastest of its inputs: `edge_index`, or `adj_t` as its `ToSparseTensor` makes it, "
        "which OGB's authors use:",
        models_table(document),
        "## Where a patched epoch goes",
        "Each part, its share of the epoch, and how many times its floor it is. The floor is the time "
        "of its bytes at the speed of a gather, of its products in the fastest library, and of one read and "
        "one write for every other step:",
        parts_table(document),
        "![The parts of an epoch beside their floors](images/parts.png)",
    ]


def section(documents: Mapping[str, Document]) -> str:
    """Everything that goes between the markers of docs/results.md."""
    published, models, limits = documents.get(PUBLISHED), documents["models"], documents["limits"]
    parts = [*(published_section(published) if published else ())]
    parts += [
        "## Two-layer models",
        machine(models["stamp"]),
        "One training epoch (forward, backward, Adam) of unchanged two-layer PyG models; "
        f"{rounds_of(models)}",
        models_table(models),
        "![Speed-up of an epoch over PyG](images/results.png)",
        "## Layers",
        machine(documents["layers"]["stamp"]),
        "One layer, forward and backward (attention: 4 heads of 32; the others: width 64). The roof is "
        "the gather of random rows of the same length, for the bytes that attention moves if no row is "
        "found in a cache:",
        layers_table(documents["layers"]),
    ]
    if "small" in documents:
        parts += [
            machine(documents["small"]["stamp"]),
            "Small graphs, forward and with its backward pass, width 32, geometric means:",
            small_table(documents["small"]),
        ]
    if "sparse" in documents:
        sparse = documents["sparse"]
        parts += [
            "## Sparse matrices",
            machine(sparse["stamp"]),
            "Training steps of models that multiply by torch's sparse matrices, as their authors write them. "
            "torch cannot run the last one: it would make a dense matrix of 40 GB.",
            sparse_steps_table(sparse),
            "Single products of random matrices of data sets' sizes, 16 (cora), 64 and 128 (arxiv) columns:",
            sparse_products_table(sparse),
        ]
    if "examples" in documents:
        parts += examples_section(documents["examples"])
    return "\n\n".join(
        [
            *parts,
            "## Operators",
            machine(documents["ops"]["stamp"]),
            "One operator: the peer's time over onehop's, geometric means over graphs and widths:",
            ops_table(documents["ops"]),
            limits_sentence(limits),
        ]
    )


def examples_section(document: Document) -> list[str]:
    """PyG's own example scripts."""
    return [
        "## PyG's examples",
        machine(document["stamp"]),
        "Some of PyG's [example scripts](examples.md), unmodified, on [stand-ins for their data "
        "sets](howto/run-pygs-examples.md), losses compared. An epoch of a script, with its tests; memory is "
        f"the peak of the process, Python and torch included. {examples_sentence(document)}",
        examples_table(document),
    ]


def potentials_section(documents: Mapping[str, Document]) -> str:
    """Energy, forces and training steps of MACE and NequIP, where they were measured."""
    measured = [documents[name] for name in POTENTIALS if name in documents]
    if not measured:
        return ""
    return "\n\n".join(
        [
            f"{machine(measured[0]['stamp'])} Random weights and atoms; {rounds_of(measured[0], 'seconds')} "
            "Memory is what two evaluations add to a process at its peak. `make bench-potentials` "
            "measures it.",
            potentials_table([row for document in measured for row in document["results"]]),
        ]
    )


SECTIONS = {
    ("docs/results.md", "results"): section,
    ("README.md", "figures"): lambda documents: figures_section(documents[PUBLISHED], documents.get("small")),
    (POTENTIALS_PAGE, "potentials"): potentials_section,
    ("README.md", "results"): lambda documents: short_models_table(documents[PUBLISHED]),
}
"""For each page and name of markers, what is between them."""


def read_all(folder: Path) -> dict[str, Document]:
    """The result files that are there, and those of :data:`NEEDED`."""
    there = [name for name in (*MORE, *POTENTIALS) if (folder / f"{name}.json").exists()]
    return {name: read(folder, name) for name in (*NEEDED, *there)}


def main(root: Path = ROOT) -> None:
    """Reads, draws, writes."""
    images = root / "docs" / "images"
    documents = read_all(root / "benchmarks" / "results")
    draw(documents["models"], images / "results.png")
    published = documents.get(PUBLISHED)
    if published:
        draw_each(published, images)
        plot_parts(published["results"], machine_line(published["stamp"]), images / "parts.png")
    measured = {"README.md": published, POTENTIALS_PAGE: any(name in documents for name in POTENTIALS)}
    texts = {name: (root / name).read_text() for name, _ in SECTIONS if measured.get(name, True)}
    for (name, markers), content in SECTIONS.items():
        if name in texts:
            texts[name] = replace_between(texts[name], content(documents), markers)
    for name, text in texts.items():
        (root / name).write_text(text)
        sys.stdout.write(f"wrote {root / name}\n")


if __name__ == "__main__":
    main()
