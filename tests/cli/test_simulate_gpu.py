import pytest

from tests.cli.running import written


def test_both_mappings_are_counted_shown_and_varied(edge_list, tmp_path):
    document, output = written(
        *(tmp_path / "gpu.json", "simulate gpu --graph", edge_list, "--width 16 --gpu h200 --order degree"),
        "--set l2_bytes=320 --sweep l2_ways=1,2,10",
    )
    assert "sectors fetched" in output
    assert document["asked"]["order"] == "degree"
    assert document["asked"]["gpu"]["l2_bytes"] == 320
    assert set(document["mappings"]) == {"neighbour", "feature"}
    counts = document["mappings"]["feature"]
    assert 0 < counts["distinct"] <= counts["fetched"] <= counts["read"] == 2 * document["graph"]["edges"]
    assert counts["floor_us"] == pytest.approx(counts["fetched"] * 32 / 4800 / 1e3)
    assert [line["value"] for line in document["sweep"]] == [1, 2, 10]
    # Sixteen ways have no room for more than the cache's ten sectors.
    assert document["sweep"][2]["feature"]["fetched"] == counts["fetched"]
