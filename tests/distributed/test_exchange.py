"""What an exchange says where messages cannot be sent, and how gradients that come back are added."""

import pytest
import torch
import torch.distributed as dist

from onehop.distributed.division import ListDivision
from onehop.distributed.exchange import Exchange
from onehop.distributed.part import Part
from onehop.errors import CommunicationError


@pytest.fixture
def part() -> Part:
    """Of rank 0 of three: nodes 0 to 2; both others have edges from node 1, one of them from node 2 too."""
    edge_index = torch.tensor([[1, 1, 2, 3, 5], [3, 5, 5, 0, 1]])
    owner = torch.tensor([0, 0, 0, 1, 1, 2], dtype=torch.int32)
    return ListDivision(edge_index, owner, 3).part(0)


def test_rows_that_cannot_be_posted_end_the_job_with_a_reason(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(operations: object) -> None:
        raise RuntimeError("Connection closed by peer\nand a long trace")

    monkeypatch.setattr(dist, "P2POp", lambda kind, message, **rest: message)
    monkeypatch.setattr(dist, "batch_isend_irecv", refused)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    exchange = Exchange(part, None)
    with pytest.raises(CommunicationError) as caught:
        exchange.values(torch.ones(3, 4))
    message = str(caught.value)
    assert message.startswith("rank 0, exchanging rows with ranks [1, 2]: another process ended or did not ")
    assert "(torch: Connection closed by peer)" in message
    assert "start it again from its last checkpoint." in message
    traffic = exchange.traffic
    assert (traffic.sent_bytes, traffic.received_bytes, traffic.exchanges) == (0, 0, 0)


def test_gradients_of_a_row_that_several_need_are_added_up(part: Part) -> None:
    assert part.owned_nodes[part.send_rows].tolist() == [1, 1, 2]
    grads = torch.tensor([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    added = Exchange(part, None).added((3, 2), grads)
    by_node = dict(zip(part.owned_nodes.tolist(), added.tolist(), strict=True))
    assert by_node == {0: [0, 0], 1: [11, 22], 2: [100, 200]}
