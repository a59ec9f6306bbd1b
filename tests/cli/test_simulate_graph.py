"""``graph`` in the JSON of the verbs of ``onehop simulate``."""

import pytest

from tests.cli.running import written

VERBS = (
    "pim --plan 1x32 --width 4",
    "pim --plan 1x32 --width 4 --model gcn",
    "pim --plan 1x32 --width 4 --sweep clock_mhz=350",
    "ndp --no-self-loops --width 16",
    "ndp --no-self-loops --width 16 --sample 2",
    "dram --width 16 --requests 10",
    "gpu --width 16",
)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_names_its_graph_alike(verb, edge_list, tmp_path):
    graph = written(tmp_path / "out.json", "simulate", verb, "--graph", edge_list)[0]["graph"]
    # Edges of a file go both ways.
    edges = {(i, j) for k in range(30) for i, j in ((k, (k + 1) % 30), (k, (k * 7 + 2) % 30))}
    both_ways = len(edges | {(j, i) for i, j in edges})
    wanted = {"source": str(edge_list), "name": "ring.txt", "nodes": 30, "edges": both_ways}
    if "--sample" in verb:
        wanted |= {"edges_low": both_ways, "edges_high": both_ways}
    assert graph == wanted


def test_self_loops_are_among_the_edges_that_a_near_rank_machine_ran_on(edge_list, tmp_path):
    found = []
    for loops in ("--self-loops", "--no-self-loops"):
        document, _ = written(tmp_path / "out.json", "simulate ndp --width 16 --graph", edge_list, loops)
        found.append(document["graph"]["edges"])
    assert 0 < found[0] - found[1] <= 30
