"""Linear steps of constant features that are nearly all 0: sums over their graph, once trained on."""

import contextlib
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GCNConv, SAGEConv, SGConv

import onehop
from onehop import native
from onehop.graph.contents import sample_of
from onehop.integrations.torch import sparse_features
from onehop.integrations.torch.sparse_features import SparseFeatures
from tests.integrations.same import SINGLE, assert_same, learned, noted, twice
from tests.processes import run_python

ROWS, COLUMNS, OUT = 60, 90, 5


def torchs_linear(*operands):
    """A linear step, which these tests run in torch's own kernels."""
    return F.linear(*operands)


@pytest.fixture
def patched(bounds):
    """The patch, with features of any size, which must have been trained on."""
    bounds(sparse_numbers=1, product_work=1 << 60, meetings=2)
    onehop.clear_cache()
    with onehop.patch():
        yield


@pytest.fixture
def sums(monkeypatch):
    """The sums over features' graphs: forward and backward."""
    calls = []
    for name in ("times", "over_rows"):
        plain = getattr(SparseFeatures, name)

        def noted(self, operand, name=name, plain=plain):
            out = plain(self, operand)
            calls.append(name if out is not None else None)
            return out

        monkeypatch.setattr(SparseFeatures, name, noted)
    return calls


BOTH = ["times", "over_rows"]


def bag_of_words(share=0.02, rows=ROWS, columns=COLUMNS):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator)
    return x * (torch.rand(rows, columns, generator=generator) < share)


def parameters(bias=True):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(OUT, COLUMNS, generator=generator).requires_grad_()
    return weight, torch.randn(OUT, generator=generator).requires_grad_() if bias else None


def train(x, weight, bias, call=None):
    with native.torchs_kernels() if call is torchs_linear else contextlib.nullcontext():
        return learned((call or F.linear)(x, weight, bias), weight, bias)


def alike(found, expected):
    assert_same(found, expected, **SINGLE)


@pytest.mark.parametrize("bias", [False, True])
def test_after_the_first_backward_pass(bias, patched, sums):
    x, given = bag_of_words(), parameters(bias)
    expected = train(x, *given, call=torchs_linear)
    alike(train(x, *given), expected)
    assert sums == []
    for _ in range(2):
        alike(train(x, *given), expected)
    assert sums == 2 * BOTH


def test_forward_passes_change_nothing(patched, sums):
    x, given = bag_of_words(), parameters()
    first, *others = [F.linear(x, *given) for _ in range(4)]
    assert sums == []
    assert all(torch.equal(each, first) for each in others)
    first.sum().backward()
    # From here on the others too are sums, without gradients as well.
    with torch.no_grad():
        torch.testing.assert_close(F.linear(x, *given), first)
    assert sums == ["times"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant, patched, sums):
    layer, x = torch.nn.Linear(COLUMNS, OUT), bag_of_words()
    expected = train(x, layer.weight, layer.bias, call=torchs_linear)[0]
    flag = torch.zeros(1, requires_grad=True)
    for _ in range(3):
        out = checkpoint(lambda _: layer(x), flag, use_reentrant=reentrant)
        torch.testing.assert_close(out, expected)
        out.sum().backward()


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.mul_(2),
        lambda x: x[3].fill_(1.0),
        lambda x: x.data.fill_(1.0),
        lambda x: x.numpy().fill(1.0),
        lambda x: x.data[-1, -1:].fill_(7.0),
        lambda x: x.fill_(0.0),
    ],
    ids=["in place", "a row", "data", "numpy", "one number", "zeros"],
)
def test_writes_are_noticed(write, patched, sums):
    x, given = bag_of_words(), parameters()
    for _ in range(2):
        train(x, *given)
    assert sums == BOTH
    write(x)
    for _ in range(3):
        alike(train(x, *given), train(x, *given, call=torchs_linear))


def test_a_write_that_no_sample_sees_is_noticed(patched, sums):
    x = bag_of_words(rows=500, columns=400)
    weight = torch.randn(OUT, 400, generator=torch.Generator().manual_seed(1)).requires_grad_()
    for _ in range(2):
        train(x, weight, None)
    assert sums == BOTH
    sample = sample_of(x)
    x.numpy()[250, 251] = 7
    assert sample_of(x) == sample
    alike(train(x, weight, None), train(x, weight, None, call=torchs_linear))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["features", "weight", "gradient"])
def test_what_is_not_finite_spreads_as_in_torch(where, value, patched, sums):
    x, (weight, bias) = bag_of_words(), parameters()
    with torch.no_grad():
        x[:, 7] = 0
        if where == "features":
            x[2, 3] = value
        if where == "weight":
            weight[1, 7] = value  # of a column without entries

    def gradients(call):
        out = call(x, weight, bias)
        upstream = torch.ones_like(out)
        if where == "gradient":
            upstream[4, 1] = value
        return [out, *torch.autograd.grad(out, [weight, bias], upstream)]

    gradients(F.linear)
    with native.torchs_kernels():
        expected = gradients(F.linear)
    alike(gradients(F.linear), expected)
    assert len(sums) == 2
    assert sums.count(None) == (where != "features")


@pytest.mark.parametrize(
    "x",
    [
        bag_of_words(0.2),
        bag_of_words().requires_grad_(),
        bag_of_words().t().contiguous().t(),
        bag_of_words().double(),
    ],
    ids=["too many", "trained themselves", "columns", "float64"],
)
def test_others_are_products(x, patched, sums):
    weight, bias = (each.detach().to(x.dtype).requires_grad_() for each in parameters())
    for _ in range(3):
        alike(train(x, weight, bias), train(x, weight, bias, call=torchs_linear))
    assert sums == []


def test_a_few_too_many_are_counted_once(patched, sums, monkeypatch):
    x, given = bag_of_words(0.07), parameters()  # the sample lets them pass
    made = noted(monkeypatch, sparse_features, "_convert")
    assert sparse_features.may_apply(x)
    for _ in range(4):
        train(x, *given)
    assert sums == []
    assert len(made) == 1


@pytest.mark.parametrize("write", [torch.Tensor.copy_, torch.utils.swap_tensors])
def test_dense_features_may_become_sparse(write, patched, sums):
    x, given = torch.ones(ROWS, COLUMNS), parameters()
    for _ in range(2):
        train(x, *given)
    assert sums == []
    assert sparse_features.is_known_dense(x)
    assert not sparse_features.is_known_dense(x.clone())
    write(x, bag_of_words())  # swap_tensors refuses tensors with weak references
    for _ in range(2):
        alike(train(x, *given), train(x, *given, call=torchs_linear))
    assert sums == BOTH


def test_fresh_features_are_not_counted(patched, sums, monkeypatch):
    monkeypatch.setattr(sparse_features, "_convert", lambda x: pytest.fail("counted"))
    x, given = bag_of_words(), parameters()
    for _ in range(3):
        train(F.dropout(x), *given)
    assert sums == []


@pytest.mark.parametrize("options", [{"reuse": False}, {"products": False}, {}], ids=str)
def test_settings_turn_it_off_and_small_features_are_products(options, bounds, sums):
    bounds(sparse_numbers=1 if options else ROWS * COLUMNS + 1, meetings=2)
    x, given = bag_of_words(), parameters()
    with onehop.patch(**options):
        for _ in range(3):
            train(x, *given)
    assert sums == []


def test_second_derivatives(patched, sums):
    x = bag_of_words()

    def second(call):
        given = parameters()
        return twice(call(x, *given), given)

    train(x, *parameters())
    with native.torchs_kernels():
        expected = second(F.linear)
    assert_same(second(F.linear), expected, rtol=1e-3, atol=1e-3)
    assert set(sums) == set(BOTH)


def test_a_weight_that_is_not_trained(patched, sums):
    x, (weight, bias) = bag_of_words(), parameters()
    for _ in range(3):
        (found,) = torch.autograd.grad(F.linear(x, weight.detach(), bias).sum(), [bias])
        assert torch.equal(found, torch.full((OUT,), float(ROWS)))
    assert sums == []


def test_it_goes_with_the_features(patched):
    x, given = bag_of_words(), parameters()
    for _ in range(2):
        train(x, *given)
    kept = onehop.cache_info().bytes
    assert kept > 0
    del x
    assert onehop.cache_info().bytes < kept


@pytest.mark.parametrize(
    "make",
    [lambda: GCNConv(COLUMNS, OUT), lambda: SAGEConv(COLUMNS, OUT), lambda: SGConv(COLUMNS, OUT, K=2)],
    ids=["GCN", "SAGE", "SG"],
)
def test_layers_multiply_first(make, patched, sums, bounds):
    bounds(kept_work=1)
    torch.manual_seed(0)
    layer, x = make(), bag_of_words()
    edge_index = torch.randint(ROWS, (2, 400), generator=torch.Generator().manual_seed(2))

    def epoch():
        return learned(layer(x, edge_index), layer)

    with onehop.patch() as handle, handle.paused():
        expected = epoch()
    for _ in range(4):
        assert_same(epoch(), expected, rtol=1e-4, atol=1e-4)
    steps = 2 if isinstance(layer, SAGEConv) else 1
    # The first backward pass may find the graph that its layer has just noted.
    assert sums.count("times") == 3 * steps
    assert 3 * steps <= sums.count("over_rows") <= 4 * steps


# In a process of its own, whose peak is of nothing else.
PEAK = """
import torch
from pathlib import Path
from onehop import native
from onehop.integrations.torch import sparse_features

x = torch.zeros(2048, 8192)
x[:, ::100] = 1
small = x[:8].clone()
sparse_features._convert(small)
before = native.extension.resident_bytes()
Path("/proc/self/clear_refs").write_text("5")
made = sparse_features._convert(x)
assert made.values.numel() == 2048 * 82
print((native.extension.peak_resident_bytes() - before) / x.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from Linux's /proc")
def test_the_entries_are_found_in_less_memory_than_the_features_take():
    done = run_python(["-c", PEAK])
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.5
