import pytest

from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.runs import Order, Run, run
from onehop.bench.tasks import save_task
from onehop.errors import OnehopError
from tests.bench.small_graphs import task

pytest.importorskip("torch_geometric")


@pytest.fixture
def path(tmp_path):
    save_task(task(), tmp_path / "task.npz")
    return str(tmp_path / "task.npz")


def test_runs_in_their_own_processes_train_alike(path):
    told = []
    alone, patched = (
        run(Order(path, "gcn", way, hidden=4, epochs=2, threads=1), lambda: told.append(1))
        for way in ("pyg-torch-csr", "onehop")
    )
    assert len(told) == 4
    assert alone.losses == pytest.approx(patched.losses, rel=1e-5)
    assert alone.test_accuracy == patched.test_accuracy
    assert alone.peak_bytes >= alone.loaded_bytes > 0


def test_a_failed_run_says_why(tmp_path):
    with pytest.raises(OnehopError, match=r"gcn \(onehop\).*No such file"):
        run(Order(str(tmp_path / "none.npz"), "gcn", "onehop", 4, 1, 1), lambda: None)


def test_the_first_epoch_is_left_out_of_the_median():
    assert Run((9.0, 1.0, 2.0, 3.0), (0.0,) * 4, 0, 0, 0.0).epoch_s == 2.0
    assert Run((9.0,), (0.0,), 0, 0, 0.0).epoch_s == 9.0


def test_memory_has_a_peak_above_what_is_resident():
    kept = bytearray(1 << 20)
    resident = resident_bytes()  # before the peak, which may rise in between
    assert peak_bytes() >= resident > len(kept)
