import json

import pytest

from tests.cli.running import onehop


def test_both_mappings_are_counted_shown_and_varied(edge_list, tmp_path):
    path = tmp_path / "gpu.json"
    result = onehop(
        *("simulate", "gpu", "--graph", edge_list, "--width", 16, "--gpu", "h200", "--order", "degree"),
        *("--set", "l2_bytes=320", "--sweep", "l2_ways=1,2,10", "--json", path),
    )
    assert result.exit_code == 0, result.output
    assert "sectors fetched" in result.stdout
    document = json.loads(path.read_text())
    assert document["asked"]["order"] == "degree"
    assert document["asked"]["gpu"]["l2_bytes"] == 320
    assert set(document["mappings"]) == {"neighbour", "feature"}
    counts = document["mappings"]["feature"]
    assert 0 < counts["distinct"] <= counts["fetched"] <= counts["read"] == 2 * document["graph"]["edges"]
    assert counts["floor_us"] == pytest.approx(counts["fetched"] * 32 / 4800 / 1e3)
    assert [line["value"] for line in document["sweep"]] == [1, 2, 10]
    # Sixteen ways have no room for more than the cache's ten sectors.
    assert document["sweep"][2]["feature"]["fetched"] == counts["fetched"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--order", "metis"], "order: expected one of own, random, degree, rcm, community, got 'metis'"),
        (["--trace", "t.json"], "trace: sectors are counted, and have no timeline"),
        (["--gpu", "v100"], "gpu: expected one of a100_80gb"),
        (["--set", "mapping=edge"], "set: expected NAME=VALUE with a NAME of sms,"),
    ],
)
def test_what_cannot_be(arguments, sentence, edge_list, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = onehop("simulate", "gpu", "--graph", edge_list, *arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
