"""The check that every figure of the documents is in a file of results."""

import json
import shutil
from pathlib import Path

import pytest

from tests import scripts

figures = scripts.load("figures")

RESULTS = {
    "results": [
        {
            "layer": "GCNConv",
            "width": 16,
            "seconds": {"pyg": {"median_s": 0.04628}, "onehop": {"median_s": 0.01537}},
            "peak_bytes": {"pyg": 3 << 20, "onehop": 5 << 19},
            "hit_share": 0.372,
            "gone_percent": 0.61,
        },
        {
            "layer": "GATConv",
            "width": 16,
            "seconds": {"pyg": {"median_s": 0.0812}, "onehop": {"median_s": 0.0203}},
            "peak_bytes": {"pyg": 7 << 20, "onehop": 4 << 20},
            "hit_share": 0.518,
            "gone_percent": 0.02,
        },
    ]
}
TABLE = """\
| layer | width | PyG, ms | onehop, ms | faster | PyG, peak MiB | hit share | gone |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| GCN | 16 | 46.3 | 15.4 | 3.01x | 3.0 | 37 % | 0.61 % |
| GAT | 16 | 81.2 | 20.3 | 4.00x | 7.0 | 52 % | 0.02 % |
"""
NAMED = f"<!-- figures: benchmarks/results/layers.json -->\n\n{TABLE}"


@pytest.fixture
def check(tmp_path):
    """Checks a page with this text below a heading, beside a file of results."""
    file = tmp_path / "benchmarks" / "results" / "layers.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(RESULTS))
    (tmp_path / "docs").mkdir()

    def run(text: str, **lists) -> list[str]:
        (tmp_path / "docs" / "page.md").write_text(f"# Page\n\n## Layers\n\n{text}")
        return figures.mistakes(tmp_path, **{"without_file": {}, "out_of_date": {}, **lists})

    return run


def test_the_documents_have_the_figures_of_their_files():
    assert figures.mistakes() == []


def test_nine_of_ten_changed_figures_are_found():
    counts = list(figures.mutated(figures.ROOT))
    number, found = (sum(count[place] for count in counts) for place in (1, 2))
    assert number > 1000
    assert found >= 0.9 * number


def test_figures_are_found_in_their_units_as_quotients_and_as_printed(check):
    assert check(NAMED) == []


@pytest.mark.parametrize(
    ("printed", "changed"),
    [
        ("46.3", "46.2"),
        ("46.3", "46.25"),
        ("46.3", "81.2"),  # another row's
        ("15.4", "46.3"),  # another column's
        ("3.01x", "3.02x"),
        ("3.0 |", "3.1 |"),
        ("37 %", "38 %"),
        ("0.61 %", "61 %"),  # another unit
    ],
)
def test_a_wrong_figure_is_named_with_its_line(check, printed, changed):
    (line,) = check(NAMED.replace(printed, changed, 1))
    number = changed.split()[0].removesuffix("x")
    assert line == f"docs/page.md:9: {number}: not in benchmarks/results/layers.json."


def test_words_in_brackets_choose_entries(check):
    named = NAMED.replace("layers.json", "layers.json (GCN)")
    wrong = check(named)
    assert wrong
    assert all(line.startswith("docs/page.md:10: ") for line in wrong)


def test_a_missing_file_is_named(check):
    assert check(NAMED.replace("layers.json", "other.json")) == [
        "docs/page.md:7: benchmarks/results/other.json: missing."
    ]


def test_a_table_without_a_file_is_a_mistake_unless_it_is_listed(check):
    (line,) = check(TABLE)
    assert line.startswith("docs/page.md:5: measured figures; name their file")
    listed = {"docs/page.md": {"Layers": "onehop bench layers"}}
    assert check(TABLE, without_file=listed) == []


def test_an_entry_of_the_list_that_is_not_needed_is_a_mistake(check):
    listed = {"docs/page.md": {"Layers": "onehop bench layers"}}
    needless = ["docs/page.md: Layers: no table without a file; remove it from WITHOUT_FILE."]
    assert check(NAMED, without_file=listed) == needless
    assert check("No table.\n", without_file=listed) == needless


@pytest.mark.parametrize(
    "table",
    [
        "| constant | value | source |\n| --- | --- | --- |\n| rate | 8 | a sheet |\n",
        "| constant | bounds | reason |\n| --- | --- | --- |\n| `w` | 1.5 to 9 | known |\n",
        "| set | registers |\n| --- | ---: |\n| AVX2 | 16 |\n",
        "| field | choice |\n| --- | --- |\n| `tile` | columns; 1.5 times as many if wide |\n| `x` | one |\n",
        f"```\n{TABLE}```\n",
    ],
)
def test_constants_explanations_and_code_are_not_measured(check, table):
    assert check(table) == []


def test_a_line_above_another_table_is_a_mistake(check):
    (line,) = check(NAMED.replace(TABLE, "| set | registers |\n| --- | ---: |\n| AVX2 | 16 |\n"))
    assert line == "docs/page.md:7: a line names files, but the table has no measured figures."


@pytest.fixture
def matrix(tmp_path):
    """The page of releases that work, and its file."""
    page, file = Path("docs") / "reference" / "works-with.md", Path("benchmarks") / "results" / "matrix.json"
    for path in (page, file):
        (tmp_path / path).parent.mkdir(parents=True)
        shutil.copy(figures.ROOT / path, tmp_path / path)
    return tmp_path, tmp_path / page, tmp_path / file


def test_a_section_that_is_out_of_date_is_a_mistake_unless_it_is_listed(matrix):
    root, page, file = matrix
    assert figures.mistakes(root, {}, {}) == []
    listed = {"docs/reference/works-with.md": {"works with": "make matrix"}}
    assert figures.mistakes(root, {}, listed) == [
        "docs/reference/works-with.md: works with: up to date; remove it from OUT_OF_DATE."
    ]
    text = page.read_text()
    page.write_text(text.replace("| yes |", "| no |", 1))
    assert page.read_text() != text
    assert figures.mistakes(root, {}, listed) == []
    (line,) = figures.mistakes(root, {}, {})
    assert line.startswith("docs/reference/works-with.md: works with: its file has other figures")
    file.unlink()
    assert figures.mistakes(root, {}, {}) == []


def test_a_section_whose_file_lacks_what_is_shown_is_a_mistake(matrix):
    root, _, file = matrix
    document = json.loads(file.read_text())
    del document["date"]
    file.write_text(json.dumps(document))
    (line,) = figures.mistakes(root, {}, {})
    assert "its file has no 'date'" in line


def test_a_section_without_a_known_command_is_a_mistake(check):
    (line,) = check("<!-- news: begin -->\n1.5 ms\n<!-- news: end -->\n")
    assert line.startswith("docs/page.md: news: no command is known")
