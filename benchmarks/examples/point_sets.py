"""Stand-ins for data sets of points in space."""

import math

import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.examples import graphs
from benchmarks.examples.stand_in import Function, StandIn

# A tenth of ModelNet10's meshes; one in 60 of the superpixels' images to train, one in 20 of those to test.
MESHES = {True: 399, False: 91}
IMAGES = {True: 1_000, False: 500}
# Of a mesh: rings of a solid of revolution, and points of each.
RINGS, AROUND = 12, 16
# As PyG's documentation has them: superpixels of an image, and edges of each, mean.
SUPERPIXELS, EDGES, DIGITS = 75, 1_392, 10


class ModelNet(StandIn):
    """Solids of revolution, whose classes have profiles of their own."""

    def __init__(
        self,
        root: str,
        name: str = "10",
        train: bool = True,
        transform: Function = None,
        pre_transform: Function = None,
        pre_filter: Function = None,
    ) -> None:
        generator, face = graphs.seeded("ModelNet", name, train), _faces()
        labels = [graphs.choices(int(name), 1, generator) for _ in range(MESHES[train])]
        made = [Data(pos=_solid(int(label), generator), face=face, y=label) for label in labels]
        super().__init__(made, transform, pre_transform, pre_filter)


class MNISTSuperpixels(StandIn):
    """Images of strokes, each digit's in a direction of its own, as superpixels with edges."""

    def __init__(
        self, root: str, train: bool = True, transform: Function = None, **transforms: Function
    ) -> None:
        generator = graphs.seeded("MNISTSuperpixels", train)
        super().__init__([_image(generator) for _ in range(IMAGES[train])], transform, **transforms)


def _faces() -> Tensor:
    """[3, F]: the triangles between neighbouring rings."""
    ring, place = torch.meshgrid(torch.arange(RINGS - 1), torch.arange(AROUND), indexing="ij")
    at, beside = ring * AROUND + place, ring * AROUND + (place + 1) % AROUND
    corners = [(at, beside, at + AROUND), (beside, beside + AROUND, at + AROUND)]
    return torch.cat([torch.stack([each.flatten() for each in triangle]) for triangle in corners], 1)


def _solid(label: int, generator: torch.Generator) -> Tensor:
    height = torch.linspace(-1, 1, RINGS)
    radius = 0.6 + 0.3 * torch.sin(height * (label + 1)) + 0.05 * torch.rand(RINGS, generator=generator)
    angle = torch.arange(AROUND) * (2 * math.pi / AROUND)
    rings = [radius.outer(angle.cos()), radius.outer(angle.sin()), height.unsqueeze(1).expand(-1, AROUND)]
    return torch.stack(rings, -1).reshape(-1, 3) * (1 + torch.rand(3, generator=generator))


def _image(generator: torch.Generator) -> Data:
    label = graphs.choices(DIGITS, 1, generator)
    pos = 28 * torch.rand(SUPERPIXELS, 2, generator=generator)
    angle = label * (math.pi / DIGITS)
    away = (pos - 14) @ torch.cat([angle.cos(), angle.sin()])
    far = (pos.unsqueeze(1) - pos).norm(dim=2).fill_diagonal_(math.inf)
    near = far <= far.flatten().kthvalue(EDGES).values
    return Data(
        x=(away.abs() < 3).float().unsqueeze(1), pos=pos, edge_index=near.nonzero().t().contiguous(), y=label
    )
