"""Layers of PyG and torch that mix the nodes of a divided graph: exact over all processes, or an error."""

import pytest

from tests.distributed.launch import reports_of

pytest.importorskip("torch_geometric")


reports = reports_of("layers_worker.py", [2, 3])


def test_normalisation_is_that_of_one_process(reports: list[dict]) -> None:
    for report in reports:
        assert len(report["errors"]) > 30
        for name, error in report["errors"].items():
            # Outputs, all gradients, running statistics; float64.
            assert error < 1e-12, name


def test_layers_without_a_path_name_themselves(reports: list[dict]) -> None:
    for report in reports:
        assert len(report["refusals"]) > 30
        for name, sentence in report["refusals"].items():
            name = name.partition(",")[0]
            assert sentence.startswith((f"edge_index: {name} ", f"x: {name} ")), sentence
            assert "process" in sentence
            assert any(advice in sentence for advice in (". Use ", ". Add them up with", "; else use ")), (
                sentence
            )


def test_a_model_that_was_not_converted_is_told(reports: list[dict]) -> None:
    for report in reports:
        for name, sentence in report["unconverted"].items():
            assert sentence.startswith(f"x: {name} "), sentence
            converts = "model = onehop.distributed.convert(model, graph)" in sentence
            assert converts == (name in ("batch normalisation", "LayerNorm", "dropout")), sentence
            assert "with onehop.distributed.alone():" in sentence


def test_rows_that_are_no_part_run_beside_it(reports: list[dict]) -> None:
    for report in reports:
        assert set(report["alone"].values()) <= {"no error"}
        assert max(report["whole rows"]) < 1e-12


def test_a_graph_that_is_gone_refuses_nothing(reports: list[dict]) -> None:
    for report in reports:
        assert set(report["after"].values()) == {"no error"}


def test_ranks_that_name_different_numbers_of_examples_are_told(reports: list[dict]) -> None:
    for report in reports:
        assert report["sizes"].startswith("batch_size: expected the same number on every rank"), report[
            "sizes"
        ]


def test_a_sum_that_is_written_out_has_the_gradient_of_one_process(reports: list[dict]) -> None:
    for report in reports:
        assert max(report["written out"]) < 1e-11


def test_narrow_features_keep_their_dtype(reports: list[dict]) -> None:
    for report in reports:
        # A few units in the last place of values up to 4.
        assert report["narrow"]["torch.float32"] < 4e-6
        assert report["narrow"]["torch.bfloat16"] < 4 * 2**-8
