"""The patch of DGL: put in, taken back, chosen, and what it keeps."""

import gc
import subprocess
import sys

import pytest
import torch

import onehop
from onehop.integrations import reports
from onehop.machines import pim

dgl = pytest.importorskip("dgl", reason="dgl is not installed here: make test-dgl runs these tests")

import dgl.nn.pytorch as dnn  # noqa: E402

from onehop.integrations.dgl import graphs  # noqa: E402
from tests.integrations.dgl.dgl_graphs import GRAPHS  # noqa: E402

MODULES = ("dgl.ops", "dgl.ops.spmm", "dgl.ops.sddmm", "dgl.ops.edge_softmax")


def snapshot() -> dict[str, object]:
    kept = {f"{m}.{name}": value for m in MODULES for name, value in vars(sys.modules[m]).items()}
    kept["relation"] = vars(dgl.heterograph_index.HeteroGraphIndex)["get_relation_graph"]
    kinds = [kind for kind in vars(dnn.conv).values() if isinstance(kind, type)]
    return kept | {kind.__qualname__: vars(kind).get("forward") for kind in kinds}


def reasons(call) -> list[str | None]:
    with reports.recorded() as calls:
        call()
    return [each.reason for each in calls]


def test_removal_restores_everything():
    before = snapshot()
    handle = onehop.patch(only="dgl")
    assert snapshot() != before
    assert "dgl.ops.spmm.gspmm" in onehop.patched()
    with handle.paused():
        assert snapshot() == before
    assert snapshot() != before
    handle.remove()
    assert snapshot() == before
    assert onehop.patched() == ()


def test_patching_twice_is_patching_once():
    onehop.patch(only="dgl")
    table = onehop.patched()
    onehop.patch(only="dgl")
    assert onehop.patched() == table


def test_without_a_name_both_frameworks_are_patched_and_each_by_its_name():
    def replaced() -> list[str]:
        # Modules of tests that ran before hold functions of PyG by name.
        return [name for name in onehop.patched() if not name.startswith("test")]

    onehop.patch()
    both = replaced()
    onehop.patch(only="dgl")
    alone = replaced()
    onehop.patch(only="pyg")
    other = replaced()
    # torch's own functions go with all frameworks, or are named.
    assert {name.split(".")[0] for name in both} == {"dgl", "torch_geometric", "torch"}
    assert {name.split(".")[0] for name in alone} == {"dgl"}
    # PyG's DataLoader fetches by classes of torch.
    torchs = [name for name in other if not name.startswith("torch_geometric")]
    assert sorted(torchs) == [
        "torch.utils.data._utils.fetch._MapDatasetFetcher.fetch",
        "torch.utils.data.dataloader._DatasetKind.create_fetcher",
    ]


def test_leaving_an_inner_block_goes_back_to_the_outer_choice():
    with onehop.patch(only="pyg"):
        before = onehop.patched()
        with onehop.patch(only="dgl"):
            assert onehop.patched() != before
        assert onehop.patched() == before


def test_functions_held_since_the_patch_are_dgls_again_afterwards():
    with onehop.patch(only="dgl"):
        held = dgl.ops.gspmm
    g, x = GRAPHS["random"](), torch.ones(30, 2)
    assert reasons(lambda: held(g, "copy_lhs", "sum", x, None)) == []


def test_only_chooses_layers():
    g, x = dgl.add_self_loop(GRAPHS["random"]()), torch.ones(30, 4)
    gat, sage = dnn.GATConv(4, 2, 2), dnn.SAGEConv(4, 2, "mean")
    onehop.patch(only=["dgl", "SAGEConv"])
    assert reasons(lambda: sage(g, x)) == [None]
    # Its fused path, and then each of its steps but the sum of scores, which has none.
    left_out = reasons(lambda: gat(g, x))
    assert left_out[0] == "patch(only=...) leaves its class out"
    assert None not in left_out
    assert reasons(lambda: dgl.ops.copy_u_sum(g, x)) == ["patch(only=...) leaves its class out"]
    onehop.patch(only="DotGatConv")
    assert {name.split(".")[0] for name in onehop.patched()} == {"dgl"}


def test_unknown_layer():
    with pytest.raises(onehop.ArgumentError, match=r"only: CFConv has no fast path; there are .*DotGatConv"):
        onehop.patch(only=["dgl", "CFConv"])


def test_machine_needs_pyg():
    with pytest.raises(onehop.ArgumentError, match="simulated machines run PyG's layers alone"):
        onehop.patch(only="dgl", machine=pim.Machine())
    assert onehop.patched() == ()


def test_old_dgl(monkeypatch):
    monkeypatch.setattr(dgl, "__version__", "1.1.3")
    monkeypatch.delitem(sys.modules["onehop.integrations.selection"]._frameworks, "dgl", raising=False)
    with pytest.raises(onehop.ConfigurationError, match=r"dgl 1\.1\.3 is too old .* which works with 2\.1"):
        onehop.patch(only="dgl")


def test_dgl_that_was_not_imported_is_left_alone():
    program = (
        "from onehop.bench.peers.dgl import help_import; help_import()\n"
        "import sys, onehop\n"
        "with onehop.patch():\n"
        "    print('dgl' in sys.modules, any(name.startswith('dgl') for name in onehop.patched()))\n"
        "with onehop.patch(only='dgl'):\n"
        "    print(all(name.startswith('dgl') for name in onehop.patched()))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


def test_graph_is_made_once_and_dies_with_dgls():
    g, x = GRAPHS["random"](), torch.ones(30, 2)
    onehop.clear_cache()
    with onehop.patch(only="dgl"):
        dgl.ops.copy_u_sum(g, x)
        first = graphs.structure_of(g._graph, torch.device("cpu"))
        dgl.ops.copy_u_sum(g.local_var(), x)
        assert graphs.structure_of(g._graph, torch.device("cpu")) is first
        assert onehop.cache_info().entries == 1
        del first
    del g
    gc.collect()
    assert onehop.cache_info().entries == 0


def test_update_all_finds_the_graph_again():
    g = GRAPHS["random"]()
    g.ndata["x"] = torch.ones(30, 2)
    onehop.clear_cache()
    before = onehop.cache_info()
    with onehop.patch(only="dgl"):
        for _ in range(3):
            g.update_all(dgl.function.copy_u("x", "m"), dgl.function.sum("m", "y"))
    after = onehop.cache_info()
    assert (after.entries, after.misses - before.misses, after.hits - before.hits) == (1, 1, 2)
    del g
    gc.collect()
    assert onehop.cache_info().entries == 0


def test_a_changed_graph_is_a_new_one():
    g, x = GRAPHS["random"](), torch.ones(30, 1)
    with onehop.patch(only="dgl"):
        before = dgl.ops.copy_u_sum(g, x)
        g.add_edges(0, 29)
        after = dgl.ops.copy_u_sum(g, x)
    assert before[29].item() == 0
    assert after[29].item() == 1


def test_structures_made_in_inference_mode_serve_training():
    g, x = GRAPHS["random"](), torch.ones(30, 2)
    with onehop.patch(only="dgl"):
        with torch.inference_mode():
            dgl.ops.copy_u_max(g, x)
        x.requires_grad_()
        dgl.ops.copy_u_sum(g, x).sum().backward()
    assert x.grad.sum() == 2 * g.num_edges()


def test_refusals_are_logged_once_a_layer_class(caplog):
    g = GRAPHS["random"]()
    with caplog.at_level("INFO", logger="onehop"), onehop.patch(only="dgl"):
        for _ in range(3):
            dgl.ops.copy_e_sum(g, torch.ones(150, 2))
    lines = [record.message for record in caplog.records if record.name == "onehop"]
    assert len(lines) == 1
    assert "OutsideLayers" in lines[0]
