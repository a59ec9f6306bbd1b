import pytest
import torch


@pytest.fixture(autouse=True)
def threads():
    """--threads sets torch's number for the whole process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def edge_list(tmp_path):
    """A file with a ring of 30 nodes and some chords."""
    path = tmp_path / "ring.txt"
    lines = [f"{i} {(i + 1) % 30}\n{i} {(i * 7 + 2) % 30}" for i in range(30)]
    path.write_text("\n".join(lines) + "\n")
    return path
