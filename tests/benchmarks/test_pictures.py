"""The pictures of the documents, drawn anew from the stored results."""

import json
from pathlib import Path

import pytest

from benchmarks import render_results, result_pictures, result_tables
from benchmarks.machines import render_pictures
from tests.pictures import drawn, faults

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def test_pictures_of_machines_stay_inside_their_frames(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "results").symlink_to(RESULTS)
    with drawn() as figures:
        render_pictures.main(tmp_path)
    assert [faults(figure) for figure in figures] == [[]] * 5
    names = {path.name for path in (tmp_path / "docs" / "images").iterdir()}
    assert names == {path.name for path in (ROOT / "docs" / "images").glob("[np][di]*_*.png")}


def test_bars_of_models_stand_over_their_names(tmp_path: Path) -> None:
    models = json.loads((RESULTS / "models.json").read_text())
    with drawn() as figures:
        result_pictures.draw(models, tmp_path / "results.png")
    assert faults(figures[0]) == []
    axes = figures[0].axes[0]
    names = [text.get_text().split("\n") for text in axes.get_xticklabels()]
    for place, (graph, hidden) in enumerate(names):
        of_group = [r for r in models["results"] if [r["graph"], str(r["hidden"])] == [graph, hidden]]
        centres = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
        own = [centre for centre in centres if abs(centre - place) < 0.5]
        assert len(own) == len([r for r in of_group if result_tables.PYG in r["speedup_over"]])
        assert sum(own) / len(own) == pytest.approx(place)


def test_published_models_stay_inside_their_frame(tmp_path: Path) -> None:
    published = json.loads((RESULTS / "published_models.json").read_text())
    with drawn() as figures:
        result_pictures.draw_each(published, tmp_path)
        machine = result_tables.machine_line(published["stamp"])
        render_results.plot_parts(published["results"], machine, tmp_path / "parts.png")
    assert [faults(figure) for figure in figures] == [[]] * 3
