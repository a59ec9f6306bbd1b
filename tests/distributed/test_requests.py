"""Rows of any nodes of a divided graph, and their gradients, on 1 and 2 processes."""

from tests.distributed.launch import reports_of

reports = reports_of("requests_worker.py", [1, 2])


def test_rows_are_those_of_the_whole_tensor_and_gradients_return(reports: list[dict]) -> None:
    for report in reports:
        assert len(report["worst"]) == 9
        for name, error in report["worst"].items():
            assert error < 1e-13, name  # sums of a few float64 numbers in another order


def test_bad_numbers_are_an_error_on_every_rank(reports: list[dict]) -> None:
    *others, last = reports
    assert last["errors"]["range"].startswith("nodes: expected numbers in [0, 60)")
    assert last["errors"]["dtype"].startswith("nodes: expected a tensor [k], int32 or int64")
    for report in others:
        for sentence in report["errors"].values():
            assert sentence.startswith(f"RowRequest failed on rank {len(reports) - 1}: ArgumentError: nodes:")
