"""The table, the handle and the log."""

import gc
import logging
import subprocess
import sys
import weakref

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.nn import conv as convs

import onehop
from onehop.integrations.pyg.hook import layer_classes
from onehop.integrations.pyg.known import GCN_NORM_MODULES
from onehop.native import extension


@pytest.fixture(autouse=True)
def _no_classes_of_other_tests() -> None:
    """Takes away layers' classes that nobody holds: they would go meanwhile."""
    gc.collect()


def snapshot() -> dict[str, object]:
    """Every attribute that the patch could touch."""
    kept: dict[str, object] = {}
    for kind in layer_classes():
        for name in ("propagate", "_jinja_propagate", "_orig_propagate", "_set_jittable_templates"):
            if name in vars(kind):
                kept[f"{kind.__module__}.{kind.__qualname__}.{name}"] = vars(kind)[name]
    for module in [
        *GCN_NORM_MODULES,
        "torch_geometric.nn.conv.cluster_gcn_conv",
        "torch_geometric.nn.conv.simple_conv",
    ]:
        for name in ("gcn_norm", "add_self_loops", "remove_self_loops"):
            if hasattr(sys.modules[module], name):
                kept[f"{module}.{name}"] = getattr(sys.modules[module], name)
    return kept


def test_removal_restores_every_attribute():
    gnn.GCNConv(3, 3)
    before = snapshot()
    handle = onehop.patch()
    assert snapshot() != before
    assert handle.active
    handle.remove()
    assert snapshot() == before
    assert not handle.active
    handle.remove()
    assert snapshot() == before


def test_classes_first_made_while_patched_are_restored():
    class Fresh(gnn.SAGEConv):
        pass

    with onehop.patch():
        Fresh(3, 3)
        assert hasattr(Fresh.propagate, "onehop_theirs")
    assert "onehop_theirs" not in vars(Fresh.propagate)
    assert Fresh.propagate.__module__.endswith("_Fresh_propagate")
    assert Fresh._jinja_propagate is Fresh.propagate


def test_patching_twice_is_patching_once():
    onehop.patch()
    table, attributes = onehop.patched(), snapshot()
    onehop.patch()
    assert onehop.patched() == table
    assert snapshot() == attributes
    onehop.unpatch()
    assert onehop.patched() == ()
    onehop.unpatch()
    assert onehop.patched() == ()


def test_the_list_names_every_module_that_binds_gcn_norm():
    onehop.patch()
    for module in GCN_NORM_MODULES:
        assert f"{module}.gcn_norm" in onehop.patched()


def test_no_module_of_pyg_binds_gcn_norm_unseen():
    import importlib
    import pkgutil

    from torch_geometric.nn import models

    holders = set()
    for package in (convs, models):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            if getattr(module, "gcn_norm", None) is convs.gcn_conv.gcn_norm:
                holders.add(info.name)
    assert holders == set(GCN_NORM_MODULES)


def test_an_error_inside_the_block_still_restores():
    before = snapshot()
    with pytest.raises(KeyError), onehop.patch():
        raise KeyError
    assert snapshot() == before


def test_paused_restores_and_comes_back():
    before = snapshot()
    handle = onehop.patch()
    with handle.paused():
        assert snapshot() == before
        assert onehop.patched() == ()
    assert handle.active
    handle.remove()
    with handle.paused():
        assert onehop.patched() == ()
    assert onehop.patched() == ()


def test_only_selects_layers_and_can_be_changed(edge_index, took_fast_path):
    class Mine(gnn.GCNConv):
        pass

    x = torch.randn(20, 4)
    gcn, mine, sage = gnn.GCNConv(4, 4), Mine(4, 4), gnn.SAGEConv(4, 4)
    handle = onehop.patch(only=["GCNConv"])
    assert took_fast_path(gcn, x, edge_index) == [None]
    assert took_fast_path(mine, x, edge_index) == [None]
    assert took_fast_path(sage, x, edge_index) == ["patch(only=...) leaves its class out"]
    onehop.patch(only="SAGEConv")
    assert took_fast_path(gcn, x, edge_index) == ["patch(only=...) leaves its class out"]
    assert took_fast_path(sage, x, edge_index) == [None]
    onehop.patch()
    assert took_fast_path(gcn, x, edge_index) == [None]
    handle.remove()


def test_unknown_name_in_only():
    with pytest.raises(
        onehop.ArgumentError, match=r"only: MeshCNNConv, Nonsense has no fast path; there are .*GCNConv"
    ):
        onehop.patch(only=["GCNConv", "Nonsense", "MeshCNNConv"])
    assert onehop.patched() == ()


def test_accelerate_patches_inside_alone(edge_index):
    conv, x = gnn.SAGEConv(4, 4), torch.randn(20, 4)

    @onehop.accelerate
    def run(factor: float) -> bool:
        """What it does."""
        conv(x, edge_index)
        return bool(onehop.patched()) and factor == 2.0

    assert run(2.0)
    assert onehop.patched() == ()
    assert run.__doc__ == "What it does."


def test_accelerate_refuses_functions_that_run_later():
    with pytest.raises(onehop.ArgumentError, match="generator or coroutine"):

        @onehop.accelerate
        def later():
            yield 1


def test_environment_switches_everything_off(monkeypatch, caplog):
    monkeypatch.setenv("ONEHOP_DISABLE", "1")
    before = snapshot()
    with caplog.at_level(logging.INFO, logger="onehop"), onehop.patch() as handle:
        assert not handle.active
        assert snapshot() == before
    assert "ONEHOP_DISABLE=1" in caplog.text


@pytest.mark.parametrize(
    ("argument", "variable", "kept"),
    [(None, None, True), (None, "0", False), (True, "0", True), (False, "1", False), (False, None, False)],
)
def test_memory_is_kept_while_patched(argument, variable, kept, monkeypatch):
    calls = noted_policies(monkeypatch)
    if variable is not None:
        monkeypatch.setenv("ONEHOP_KEEP_MEMORY", variable)
    with onehop.patch(keep_memory=argument):
        assert calls == (["keep"] if kept else [])
        with onehop.patch():
            assert calls == (["keep"] if kept else [])
    assert calls == (["keep", "pause"] if kept else [])
    onehop.unpatch()
    assert calls == (["keep", "pause", "give back"] if kept else [])


def noted_policies(monkeypatch):
    """What the pool is asked, from now on."""
    onehop.unpatch()
    calls: list[str] = []
    monkeypatch.setattr(extension, "keep_tensor_memory", lambda: calls.append("keep") or True)
    monkeypatch.setattr(extension, "is_from_pool", lambda data: True)
    monkeypatch.setattr(extension, "pause_keeping", lambda: calls.append("pause"))
    monkeypatch.setattr(extension, "pool_clear", lambda: calls.append("give back"))
    return calls


def test_keep_memory_can_be_changed_later(monkeypatch):
    calls = noted_policies(monkeypatch)
    onehop.patch(keep_memory=False)
    assert calls == []
    with onehop.patch(keep_memory=True) as handle:
        with handle.paused():
            assert calls == ["keep", "pause"]
        assert calls == ["keep", "pause", "keep"]
    assert calls == ["keep", "pause", "keep", "pause"]
    onehop.patch(keep_memory=False)
    assert calls.pop() == "give back"
    onehop.unpatch()
    assert calls == ["keep", "pause", "keep", "pause"]


@pytest.mark.usefixtures("ordinary_bounds")
def test_a_refusal_is_logged_once(edge_index, caplog):
    x = torch.randn(20, 4)
    layer = gnn.SAGEConv(4, 4, aggr="median")
    with onehop.patch(), caplog.at_level(logging.INFO, logger="onehop"):
        for _ in range(3):
            layer(x, edge_index)
    lines = [record for record in caplog.records if record.name == "onehop"]
    assert len(lines) == 1
    assert lines[0].levelno == logging.INFO
    assert "SAGEConv" in lines[0].message
    assert "fits in the cache" in lines[0].message


def test_a_patch_on_top_of_ours_is_left_alone(monkeypatch):
    module = convs.gcn_conv
    theirs = module.gcn_norm
    handle = onehop.patch()

    def third_party(*args, **kwargs):
        return theirs(*args, **kwargs)

    module.gcn_norm = third_party
    handle.remove()
    assert module.gcn_norm is third_party
    module.gcn_norm = theirs


def test_the_patch_keeps_no_class_alive(edge_index):
    with onehop.patch():

        def make_and_drop() -> weakref.ref[type]:
            class Passing(gnn.SAGEConv):
                pass

            Passing(4, 4)(torch.randn(20, 4), edge_index)
            return weakref.ref(Passing)

        reference = make_and_drop()
        gc.collect()
        # The class body is gone; what PyG itself keeps are modules of rendered source, not classes.
        assert reference() is None


def test_patch_without_pyg_says_what_to_install():
    program = (
        "import sys, importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch_geometric' else find(name, *rest)\n"
        "import onehop\n"
        "try:\n    onehop.patch()\n"
        "except onehop.ConfigurationError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'onehop[pyg]'" in done.stdout


def _frameworks() -> dict[str, object]:
    # onehop.integrations.patch is the module, and onehop.patch the function.
    return sys.modules["onehop.integrations.selection"]._frameworks


@pytest.fixture
def of_release(monkeypatch):
    """Sets PyG's version, and lets the patch meet PyG for the first time."""
    import torch_geometric

    def set_version(version):
        monkeypatch.setattr(torch_geometric, "__version__", version)
        monkeypatch.delitem(_frameworks(), "pyg", raising=False)

    onehop.unpatch()
    return set_version


@pytest.mark.parametrize("version", ["2.6.0", "2.8.1", "2.9.1"])
def test_releases_that_are_patched(version, of_release, caplog):
    of_release(version)
    with caplog.at_level(logging.WARNING, logger="onehop"), onehop.patch():
        assert onehop.patched()
    assert ("was tested with torch_geometric 2.6 to 2.8" in caplog.text) == (version == "2.9.1")


def test_a_release_that_is_too_old_is_refused_and_nothing_is_patched(of_release):
    of_release("2.5.3")
    with pytest.raises(
        onehop.ConfigurationError, match=r"2\.5\.3 is too old .* which works with 2\.6 to 2\.8"
    ):
        onehop.patch()
    assert onehop.patched() == ()


@pytest.mark.parametrize(
    ("version", "error"), [("2.9.1", onehop.ConfigurationError), ("2.8.0", AttributeError)]
)
def test_what_fails_on_the_way_leaves_nothing_patched(version, error, of_release, monkeypatch):
    def missing():
        raise AttributeError("torch_geometric has no such function")

    of_release(version)
    unpatched = torch.nn.functional.dropout, torch._VF.dropout, gnn.MessagePassing.propagate
    monkeypatch.setattr("onehop.integrations.pyg.hook.wrap_existing", missing)
    with pytest.raises(error) as caught:
        onehop.patch()
    if error is not AttributeError:
        assert "no such function" in str(caught.value)
        assert "Install an older one: pip install -U 'torch_geometric<2.9'" in str(caught.value)
    assert onehop.patched() == ()
    assert unpatched == (torch.nn.functional.dropout, torch._VF.dropout, gnn.MessagePassing.propagate)
    monkeypatch.undo()
    with onehop.patch():
        assert onehop.patched()
