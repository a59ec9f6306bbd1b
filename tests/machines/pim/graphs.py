"""Graphs that are hard to share out."""

import torch

from onehop import Graph


def hostile() -> dict[str, Graph]:
    generator = torch.Generator().manual_seed(0)

    def edges(count: int, sources: int, targets: int) -> torch.Tensor:
        return torch.stack(
            [
                torch.randint(sources, (count,), generator=generator),
                torch.randint(targets, (count,), generator=generator),
            ]
        )

    hub = edges(400, 60, 60)
    hub[1, :350] = 7
    gaps = edges(120, 90, 90)
    gaps[1] = gaps[1] % 5 * 20
    return {
        "uniform": Graph.from_edge_index(edges(900, 100, 100), 100),
        "hub": Graph.from_edge_index(hub, 60),
        "empty rows": Graph.from_edge_index(gaps, 90),
        "fewer edges than tasklets": Graph.from_edge_index(edges(9, 40, 40), 40),
        "fewer rows than cores": Graph.from_edge_index(edges(50, 5, 5), 5),
        "bipartite": Graph.from_edge_index(edges(300, 31, 77), size=(31, 77)),
        "multi-edges": Graph.from_edge_index(torch.tensor([[1, 1, 1, 2], [0, 0, 0, 0]]), 3),
        "no edges": Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 12),
    }


HOSTILE = hostile()
