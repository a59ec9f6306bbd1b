"""The proof that our kernels draw torch's numbers; and generators that several threads draw from."""

import threading

import pytest
import torch

import onehop
from onehop import reference
from onehop.ops import torch_stream
from tests.ops.test_dropout import OPERATOR, at, at_every_size as at_every_size, both, numbers


def test_where_the_streams_differ_torchs_own_runs(monkeypatch, at_every_size):
    monkeypatch.setattr(OPERATOR, "agrees", lambda: False)
    assert all(torch.equal(*pair) for pair in both(lambda way: way(numbers(400), 0.5)))
    assert at_every_size == []


def wrong_numbers(state, p, x, out, mask):
    out.fill_(1 / (1 - p))
    return True


def unmoved(state, p, x, out, mask):
    return torch_stream_draw(state.clone(), p, x, out, mask)


def unknown_layout(state, p, x, out, mask):
    return False


torch_stream_draw = torch_stream.draw


@pytest.mark.parametrize("faulty", [wrong_numbers, unmoved, unknown_layout])
def test_the_proof_notices_other_streams(monkeypatch, faulty):
    before = torch.get_rng_state()
    assert torch_stream.agrees.__wrapped__()
    monkeypatch.setattr(torch_stream, "draw", faulty)
    assert not torch_stream.agrees.__wrapped__()
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_state_leaves_the_draw_to_torch(monkeypatch):
    monkeypatch.setattr(torch_stream, "draw", unknown_layout)
    ours, theirs = at(3), at(3)
    x = numbers(500).requires_grad_()
    found = OPERATOR.dropped(x, 0.3, ours)
    expected = reference.dropout(x, 0.3, generator=theirs)
    assert torch.equal(found, expected)
    assert torch.equal(torch.autograd.grad(found.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])
    assert torch.equal(ours.get_state(), theirs.get_state())


def test_states_of_other_layouts_are_refused():
    out = torch.empty(10)
    good = at(3).get_state()
    longer = torch.cat([good, good.new_zeros(8)])
    disagreeing = good.clone()
    disagreeing[8:12] = torch.tensor([17], dtype=torch.int32).view(torch.uint8)
    wide = good.clone()
    wide[24 + 4] = 1
    for state in (good[:-8], longer, disagreeing, wide):
        before = state.clone()
        assert not torch_stream.draw(state, 0.5, None, out, None)
        assert torch.equal(state, before)
    assert torch_stream.draw(good, 0.5, None, out, None)


def test_numbers_that_another_thread_drew_meanwhile_are_not_used_again(monkeypatch):
    generator = at(0)
    interruptions = [11, 3]

    def interrupted(*args):
        done = torch_stream_draw(*args)
        if interruptions:
            torch.empty(interruptions.pop(), dtype=torch.int32).random_(generator=generator)
        return done

    monkeypatch.setattr(torch_stream, "draw", interrupted)
    found = onehop.dropout(numbers(2000), 0.5, generator=generator)
    assert torch.equal(found, reference.dropout(numbers(2000), 0.5, generator=at(14)))


def test_where_other_threads_never_pause_torchs_own_draw_runs(monkeypatch):
    generator = at(0)

    def interrupted(*args):
        torch.empty(5, dtype=torch.int32).random_(generator=generator)
        return torch_stream_draw(*args)

    monkeypatch.setattr(torch_stream, "draw", interrupted)
    found = onehop.dropout(numbers(2000), 0.5, generator=generator)
    assert torch.equal(found, reference.dropout(numbers(2000), 0.5, generator=at(15)))


def test_threads_share_the_stream():
    """Together, they draw what one would, in some order: no number is used twice."""
    expected = at(0)
    pieces = [reference.dropout(torch.ones(5000), 0.5, generator=expected) for _ in range(40)]
    generator, found = at(0), []

    def draw():
        found.extend(onehop.dropout(torch.ones(5000), 0.5, generator=generator) for _ in range(10))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(generator.get_state(), expected.get_state())
    assert {tuple(piece.tolist()) for piece in found} == {tuple(piece.tolist()) for piece in pieces}


def test_streams_that_agree_at_their_beginning_alone_do_not_agree(monkeypatch):
    def at_the_beginning(state, p, x, out, mask):
        if torch.equal(state, torch.Generator().manual_seed(torch_stream._SEED).get_state()):
            return torch_stream_draw(state, p, x, out, mask)
        state.copy_(at(1).get_state())
        out.zero_()
        return True

    assert torch_stream._same(0, 400, 0.5)
    monkeypatch.setattr(torch_stream, "draw", at_the_beginning)
    assert torch_stream._same(0, 400, 0.5)
    assert not torch_stream.agrees.__wrapped__()
    assert not any(torch_stream._same(before, 400, 0.5) for before, _ in torch_stream._PROOFS if before)
