"""The names of graphs on command lines."""

import re

import pytest

from onehop import datasets
from onehop.bench import graph_names, sources
from onehop.datasets import external
from onehop.errors import ArgumentError

REFUSED = {
    "corra": "graph: there is no file 'corra'; did you mean cora? Generated graphs are twin:NAME,",
    "none.mtx": "graph: there is no file 'none.mtx'. Generated graphs are twin:NAME, with one of",
    "twin:arxivv": "got 'twin:arxivv'; did you mean arxiv?",
    "twin:": "graph: expected twin:NAME with one of amazon,",
    "pyg:cora": "graph: expected pyg:NAME with one of Cora, CiteSeer, PubMed, got 'pyg:cora'",
    "ogb:products": "graph: expected ogb:NAME with one of ogbn-arxiv, ogbn-products, got 'ogb:products'",
    "nas:arxiv": "graph: expected a file or one of twin:NAME, pyg:NAME, ogb:NAME, got 'nas:arxiv'.",
    "": "graph: there is no file ''",
}


def test_names_are_those_of_the_data_sets():
    assert list(graph_names.TWINS) == datasets.names()
    assert graph_names.PREFIXES == datasets.PREFIXES
    assert graph_names._NAMED["pyg:"] == external._PLANETOID
    assert graph_names._NAMED["ogb:"] == external._OGB
    assert {*graph_names.BENCHMARK_GRAPHS, *sources.OWN} <= {*graph_names.TWINS}


@pytest.mark.parametrize("name", graph_names.TWINS)
def test_a_name_alone_is_the_twin(name):
    assert graph_names.full("graph", name) == graph_names.full("graph", f"twin:{name}") == f"twin:{name}"


def test_a_name_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("cora", "corra"):
        (tmp_path / file).touch()
    assert graph_names.full("graph", "cora") == "twin:cora"
    assert graph_names.full("graph", "./cora") == "./cora"
    assert graph_names.full("graph", "corra") == "corra"


@pytest.mark.parametrize(("source", "sentence"), REFUSED.items(), ids=REFUSED)
def test_a_graph_that_is_not_there_is_refused(source, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=re.escape(sentence)):
        graph_names.full("graph", source)


def test_a_structure_is_its_own(tmp_path):
    assert sources.structure("cora").num_nodes == 2708
    assert sources.structure("twin:cora").name == "twin:cora"
