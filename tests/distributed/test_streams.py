"""Random numbers of the processes of a job; the process is told which of them it is."""

import pytest
import torch

from onehop.distributed import streams


def _drawn(monkeypatch, rank, seed):
    """What is drawn inside the block, and what afterwards."""
    monkeypatch.setattr(streams, "place", lambda group: (rank, 4))
    with streams.same_random(seed):
        inside = torch.rand(5)
    return inside, torch.rand(5)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_inside_and_then_one_stream_each(monkeypatch, seed):
    torch.manual_seed(seed)
    inside, after = torch.rand(5), torch.rand(5)
    of_ranks = [_drawn(monkeypatch, rank, seed) for rank in range(4)]
    assert all(torch.equal(found, inside) for found, _ in of_ranks)
    # Rank 0 goes on as a single process would.
    assert torch.equal(of_ranks[0][1], after)
    assert len({tuple(found.tolist()) for _, found in of_ranks}) == 4
    assert torch.equal(_drawn(monkeypatch, 3, seed)[1], of_ranks[3][1])


def test_seeds_are_torchs_and_differ():
    found = {streams.seed_of(seed, rank) for seed in range(20) for rank in range(20)}
    assert len(found) == 400
    assert all(0 <= seed < 2**63 for seed in found)
    # Other numbers would change the dropout of programs that run again.
    assert streams.seed_of(7, 1) == 2297865989351888797
