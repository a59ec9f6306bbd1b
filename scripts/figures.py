"""Whether the figures of README.md and the documents are those of the files of results.

    python scripts/figures.py [--mutate]

1.  What is between markers, ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``, is what its command
    writes from the stored files. A section that has to wait for a measurement is in :data:`OUT_OF_DATE`.
2.  Each figure of a table outside of markers is in the file that the line above the table names; see
    ``benchmarks/figures.py``. A table without a file is in :data:`WITHOUT_FILE`.

An entry of these lists that is not needed any more is a mistake too, so the lists can only shrink. Prints a
line for each mistake, and fails if there are any. ``--mutate`` changes the last digit of each figure, one
at a time, and prints for how many of them the check would fail.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import render_examples, render_matrix, render_reproductions, render_results  # noqa: E402
from benchmarks.figures import Table, files_of, mutants, tables, wrong  # noqa: E402
from benchmarks.machines import render_pim  # noqa: E402
from benchmarks.packages import __main__ as packages  # noqa: E402
from benchmarks.pages import replace_between  # noqa: E402
from onehop.reproduce import WORKS  # noqa: E402

Lists = Mapping[str, Mapping[str, str]]

WITHOUT_FILE: Lists = {
    "docs/explanation/internet-scale.md": {
        "Bytes an edge": "prints only: python -m benchmarks.distributed.count_memory",
    },
    "docs/explanation/kernels.md": {
        "Scales": "no command: sums with factors in the loop, and with rows that were scaled first",
        "NaN, ties, empty rows": "no command: extremum, and aggregate with reduce='max', on twin:arxiv",
    },
    "docs/explanation/peers.md": {
        "iSpLib": "no command: parts of a call on cora, timed alone; the other tables there have files",
    },
    "docs/explanation/tuner.md": {
        "The search": "no command: epochs of a GCN under patch(tune='auto')",
        "What it gains": "means over entries of tuner_exhaustive.json: bench_tuner exhaustive",
        "Generated kernels": "no command: onehop.tune(codegen=True) with one constant changed",
        "The prefetch hint": "bench_tuner field --field prefetch_hint --values L2,L1, elsewhere",
    },
    "docs/howto/serve.md": {
        "An exported model": "python -m benchmarks.layers.bench_exported --nodes 40,400,4000,20000",
        "Measure serving": "onehop bench serve --json FILE",
    },
    "docs/howto/train-on-several-processes.md": {
        "Rounded halos": "prints only: tests/distributed/halo_modes_worker.py",
    },
    "docs/machines/dram.md": {
        "Energy": "follows from the currents in onehop/machines/dram/presets.py; test_energy.py checks it",
        "Against DRAMPower": "onehop simulate dram --commands all.csv --json all.json, then DRAMPower 5.1",
    },
    "docs/machines/ndp.md": {
        "Area and power of a unit": "onehop simulate ndp --json FILE, its key silicon",
        "Speed-up of aggregation": "onehop simulate ndp --graph twin:arxiv, and twin:products, --json FILE",
        "Whole models": "onehop simulate ndp --graph twin:NAME --layers 3 --model MODEL --json FILE",
        "Shares of a GCN's time, and end to end": "onehop reproduce grande, when its file has these rows",
    },
    "docs/reference/datasets.md": {
        "Twins with communities": "no command: degrees and clustering of the twins in onehop.datasets",
    },
}
"""Documents, headings, and why tables below them have no file, or the command that measures them."""

OUT_OF_DATE: Lists = {}
"""Documents, names of sections, and what brings them up to date."""

WHOLE = ("docs/reference/pyg-layers.md",)
"""Pages that a command writes as a whole; tests/integrations/pyg/test_host_suite.py checks their figures."""


def read(root: Path, name: str) -> Any:
    """A file of results."""
    return json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text())


def measured_step(content: Callable[[dict[str, Any]], str], root: Path) -> str:
    """A section of what ``make bench`` measures."""
    folder = root / "benchmarks" / "results"
    for name in (*render_results.NEEDED, render_results.PUBLISHED):
        if not (folder / f"{name}.json").exists():
            raise FileNotFoundError(name)
    return content(render_results.read_all(folder))


def near_bank(section: Callable[[render_pim.Read], str], root: Path) -> str:
    """A section of docs/machines/pim-results.md."""
    return section(render_pim.results(root))


SECTIONS: Mapping[tuple[str, str], Callable[[Path], str]] = {
    **{place: partial(measured_step, content) for place, content in render_results.SECTIONS.items()},
    ("README.md", "works with"): lambda root: render_matrix.summary(read(root, "matrix")),
    ("README.md", "works"): render_reproductions.works,
    ("docs/examples.md", "results"): lambda root: render_examples.content(read(root, "examples_all")),
    ("docs/packages.md", "results"): lambda root: packages.content(read(root, "packages")),
    ("docs/reference/works-with.md", "works with"): lambda root: render_matrix.every(read(root, "matrix")),
    ("docs/reproduce.md", "computed"): render_reproductions.summary,
    ("docs/reproduce.md", "fits"): render_reproductions.fits,
    **{
        (f"docs/reproduce/{work}.md", "computed"): partial(render_reproductions.section, work=work)
        for work in WORKS
    },
    **{
        ("docs/machines/pim-results.md", section.__name__): partial(near_bank, section)
        for section in render_pim.SECTIONS
    },
}
"""What is between the markers of each document, by its name."""


def documents(root: Path) -> list[Path]:
    """README.md and the pages of docs."""
    return [page for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))) if page.exists()]


def stale(root: Path, name: str, section: str) -> str | None:
    """Why a section is not what its command writes; None if it is, or if it has no file yet."""
    text = (root / name).read_text()
    try:
        rendered = replace_between(text, SECTIONS[name, section](root), section, name)
    except FileNotFoundError:
        return None
    except KeyError as error:
        return f"its file has no {error}, which its command shows; measure it again"
    return None if rendered == text else "its file has other figures; have its command write it again"


def section_mistakes(root: Path, out_of_date: Lists) -> Iterator[str]:
    """The sections that differ from what their commands write."""
    for page in documents(root):
        name = str(page.relative_to(root))
        for section in sections(page):
            if (name, section) not in SECTIONS:
                yield f"{name}: {section}: no command is known that writes it; add it to SECTIONS."
                continue
            why, command = stale(root, name, section), out_of_date.get(name, {}).get(section)
            if why and command is None:
                yield f"{name}: {section}: {why}."
            if not why and command is not None:
                yield f"{name}: {section}: up to date; remove it from OUT_OF_DATE."


def sections(page: Path) -> list[str]:
    """The names of a document's sections."""
    begins = (line for line in page.read_text().splitlines() if line.endswith(": begin -->"))
    return [line.removeprefix("<!-- ").removesuffix(": begin -->") for line in begins]


def measured(root: Path) -> Iterator[Table]:
    """The tables of measured figures that are outside of markers."""
    for page in documents(root):
        if str(page.relative_to(root)) not in WHOLE:
            yield from (table for table in tables(root, page) if table.named or table.is_measured())


def table_mistakes(root: Path, without_file: Lists) -> Iterator[str]:
    """The tables without a file, and the figures that no file has."""
    needed = set()
    for table in measured(root):
        where = f"{table.document}:{table.line}"
        if table.named is None:
            needed.add((table.document, table.heading))
            if table.heading not in without_file.get(table.document, {}):
                yield f"{where}: measured figures; name their file above them: <!-- figures: FILE.json -->."
            continue
        if not table.is_measured():
            yield f"{where}: a line names files, but the table has no measured figures."
            continue
        files, missing = files_of(root, table.named)
        yield from (f"{where}: {file}: missing." for file in missing)
        if not missing:
            for figure in wrong(table, files):
                yield f"{table.document}:{figure.line}: {figure.text}: not in {table.named}."
    for document, headings in without_file.items():
        for heading in headings:
            if (document, heading) not in needed:
                yield f"{document}: {heading}: no table without a file; remove it from WITHOUT_FILE."


def mistakes(
    root: Path = ROOT, without_file: Lists = WITHOUT_FILE, out_of_date: Lists = OUT_OF_DATE
) -> list[str]:
    """All mistakes, a line each."""
    return [*section_mistakes(root, out_of_date), *table_mistakes(root, without_file)]


def mutated(root: Path) -> Iterator[tuple[Table, int, int]]:
    """The tables with files, how many figures each has, and how many are found when changed."""
    for table in measured(root):
        if table.named is not None:
            yield table, *mutants(table, files_of(root, table.named)[0])


def main() -> None:
    """Prints what is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutate", action="store_true", help="change each figure, and count what is found")
    if parser.parse_args().mutate:
        counts = list(mutated(ROOT))
        for table, number, found in counts:
            print(f"{found:4} of {number:4}  {table.document}:{table.line}")
        number, found = (sum(count[place] for count in counts) for place in (1, 2))
        print(f"{found:4} of {number:4}  changed figures are found: {100 * found / number:.1f} %")
        return
    lines = mistakes()
    for line in lines:
        print(line)
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
