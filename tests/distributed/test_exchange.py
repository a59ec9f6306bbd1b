"""What an exchange says where messages cannot be sent."""

import pytest
import torch
import torch.distributed as dist

from onehop.distributed.division import ListDivision
from onehop.distributed.exchange import Exchange
from onehop.errors import CommunicationError


def test_rows_that_cannot_be_posted_end_the_job_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both other ranks have edges from nodes of rank 0.
    edge_index = torch.tensor([[1, 1, 2, 3, 5], [3, 5, 5, 0, 1]])
    owner = torch.tensor([0, 0, 0, 1, 1, 2], dtype=torch.int32)
    part = ListDivision(edge_index, owner, 3).part(0)

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
