"""What ``bench_dispatch.py`` measures but for break-even: small calls, training steps, large calls, products.

Each function makes calls of an order, the options of the benchmark by name. But for small calls they return
what is compared: results and gradients, or the loss.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import utils
from torch_geometric.nn import GCNConv

from benchmarks.harness import Row

Call = Callable[[], list[Tensor]]
# As Cora: papers, words, words of a paper on average, classes, directed edges.
PAPERS, WORDS, WORDS_EACH, CLASSES, CITATIONS = 2_708, 1_433, 18, 7, 10_556
BAG_SIZE = 20
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# Rows, inner columns, and columns; rows of None are an option.
PRODUCTS = ((256, 64, 64), (2_048, 64, 64), (None, 256, 256))


# --- small calls -----------------------------------------------------------------------------------------


def small_calls() -> dict[str, Callable[[], object]]:
    """Calls of a few numbers, all of which are torch's own under the patch."""
    x, total, values = torch.randn(20, 8), torch.zeros(20, 8), torch.randn(3, 8)
    index, mask, batch = torch.tensor([1, 2, 3]), x[:, 0] > 0, torch.randn(2, 4, 4)
    entries, weight = index.unsqueeze(1).expand(3, 8), torch.randn(8, 8)
    return {
        "x[i]": lambda: x[index],
        "x[m]": lambda: x[mask],
        "index_select": lambda: x.index_select(0, index),
        "gather": lambda: x.gather(0, entries),
        "scatter_add_": lambda: total.scatter_add_(0, entries, values),
        "index_add_": lambda: total.index_add_(0, index, values),
        "mm": lambda: torch.mm(x, weight),
        "F.linear": lambda: F.linear(x, weight),
        "bmm": lambda: torch.bmm(batch, batch),
        "x[3]": lambda: x[3],
        "x[1:]": lambda: x[1:],
        "x[:, 2:4]": lambda: x[:, 2:4],
    }


# --- training steps --------------------------------------------------------------------------------------


def mlp_step(order: Row) -> Call:
    """A step of an MLP of 6,800 parameters."""
    layers = [torch.nn.Linear(32, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)]
    x = torch.randn(64, 32)
    return _step(layers, lambda: layers[2](F.relu(layers[1](F.relu(layers[0](x))))).square().mean())


def transformer_step(order: Row) -> Call:
    """A step of a transformer of 107,000 parameters, with dropout."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    encoder, embedding = torch.nn.TransformerEncoder(layer, 3), torch.nn.Embedding(100, 64)
    tokens = torch.randint(100, (8, 32))
    target = torch.randn(8, 32, 64)  # the squares of normalised rows have no gradient
    return _step([encoder, embedding], lambda: F.mse_loss(encoder(embedding(tokens)), target))


def gcn_step(order: Row) -> Call:
    """A step of PyG's ``gcn.py``, on a random graph and bags of words of Cora's size."""
    x = (torch.rand(PAPERS, WORDS) < WORDS_EACH / WORDS).float()
    edges, labels = torch.randint(PAPERS, (2, CITATIONS)), torch.randint(CLASSES, (PAPERS,))
    first, second = GCNConv(WORDS, 16), GCNConv(16, CLASSES)

    def loss() -> Tensor:
        hidden = F.relu(first(F.dropout(x), edges))
        return F.cross_entropy(second(F.dropout(hidden), edges), labels)

    return _step([first, second], loss)


def _step(modules: list[torch.nn.Module], loss: Callable[[], Tensor]) -> Call:
    parameters = [each for module in modules for each in module.parameters()]
    optimizer = torch.optim.Adam(parameters)

    def once() -> list[Tensor]:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        return [found.detach()]

    return once


STEPS = {"MLP": mlp_step, "transformer": transformer_step, "gcn.py": gcn_step}


# --- large calls, forward and backward -------------------------------------------------------------------


def two_gathers(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Rows by a subscript and by ``index_select``."""
    return x[index], x.index_select(0, index)


def eager(order: Row) -> Call:
    """Both gathers as Python calls them."""
    return _gathers(order, two_gathers)


def scripted(order: Row) -> Call:
    """Both gathers as TorchScript calls them."""
    return _gathers(order, torch.jit.script(two_gathers))


def _gathers(order: Row, both: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Call:
    x, index = torch.randn(order["nodes"], order["width"], requires_grad=True), _index(order)
    grad = torch.randn(order["edges"], order["width"])

    def once() -> list[Tensor]:
        found = both(x, index)
        return [found[0].detach(), *torch.autograd.grad(found, x, (grad, grad))]

    return once


def pyg_scatter(reduce: str) -> Callable[[Row], Call]:
    """PyG's function, which calls torch's scatters."""

    def make(order: Row) -> Call:
        messages = torch.randn(order["edges"], order["width"], requires_grad=True)
        index, grad = _index(order), torch.randn(order["nodes"], order["width"])

        def once() -> list[Tensor]:
            out = utils.scatter(messages, index, dim_size=order["nodes"], reduce=reduce)
            return [out.detach(), *torch.autograd.grad(out, messages, grad)]

        return once

    return make


def embedding(order: Row) -> Call:
    """Rows of an embedding and its dense gradient, with a new index in each call."""
    table = torch.nn.Embedding(order["table_rows"], order["width"])
    grad = torch.randn(order["bags"] * BAG_SIZE, order["width"])

    def once() -> list[Tensor]:
        out = table(torch.randint(order["table_rows"], grad.shape[:1]))
        return [out.detach(), *torch.autograd.grad(out, table.weight, grad)]

    return once


def embedding_bag(mode: str) -> Callable[[Row], Call]:
    """Bags of 20 rows and the dense gradient, with a new index in each call."""

    def make(order: Row) -> Call:
        table = torch.nn.EmbeddingBag(order["table_rows"], order["width"], mode=mode)
        offsets, grad = torch.arange(order["bags"]) * BAG_SIZE, torch.randn(order["bags"], order["width"])

        def once() -> list[Tensor]:
            out = table(torch.randint(order["table_rows"], (order["bags"] * BAG_SIZE,)), offsets)
            return [out.detach(), *torch.autograd.grad(out, table.weight, grad)]

        return once

    return make


def _index(order: Row) -> Tensor:
    return torch.randint(order["nodes"], (order["edges"],))


LARGE = {
    "x[i] + index_select, eager": eager,
    "x[i] + index_select, scripted": scripted,
    "Embedding": embedding,
    **{f"EmbeddingBag, {mode}": embedding_bag(mode) for mode in ("sum", "mean")},
    **{f"PyG's scatter, {reduce}": pyg_scatter(reduce) for reduce in ("sum", "mean", "max")},
}


# --- products of 16-bit numbers --------------------------------------------------------------------------


def products(most_rows: int) -> dict[str, Callable[[Row], Call]]:
    """A linear step with its gradients, and a batch of products, of both dtypes."""
    makers: dict[str, Callable[[Row], Call]] = {}
    for name, dtype in DTYPES.items():
        for rows, inner, columns in PRODUCTS:
            sizes = rows or most_rows, inner, columns
            for kind in ("addmm", "mm to input", "mm to weight"):
                text = " x ".join(map(str, sizes))
                makers[f"{name} {kind}, {text}"] = _product(kind, dtype, *sizes)
        makers[f"{name} bmm, 16 x 128 x 64 x 128"] = _batched(dtype)
    return makers


def _product(kind: str, dtype: torch.dtype, rows: int, inner: int, columns: int) -> Callable[[Row], Call]:
    def make(order: Row) -> Call:
        x, weight, bias, grad = (
            torch.randn(shape).to(dtype)
            for shape in ((rows, inner), (columns, inner), (columns,), (rows, columns))
        )
        calls: dict[str, Call] = {
            "addmm": lambda: [torch.addmm(bias, x, weight.t())],
            "mm to input": lambda: [torch.mm(grad, weight)],
            "mm to weight": lambda: [torch.mm(grad.t(), x)],
        }
        return calls[kind]

    return make


def _batched(dtype: torch.dtype) -> Callable[[Row], Call]:
    def make(order: Row) -> Call:
        left, right = torch.randn(16, 128, 64).to(dtype), torch.randn(16, 64, 128).to(dtype)
        return lambda: [torch.bmm(left, right)]

    return make
