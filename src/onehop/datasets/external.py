"""Well-known graphs from the collections of PyTorch Geometric and the Open Graph Benchmark."""

from pathlib import Path

import numpy as np
import torch

from onehop.datasets import store
from onehop.datasets.dataset import Dataset
from onehop.datasets.splits import Split
from onehop.errors import DatasetError, check_choice
from onehop.graph.edges import undirected

_PLANETOID = ("Cora", "CiteSeer", "PubMed")
_OGB = ("ogbn-arxiv", "ogbn-products")


def pyg(name: str) -> Dataset:
    """Load a citation graph with its public split through PyTorch Geometric; it is downloaded if needed.

    Args:
        name: ``Cora``, ``CiteSeer`` or ``PubMed``.

    Raises:
        ArgumentError: There is no graph of this name.
        DatasetError: torch_geometric is not installed, or the download failed.
    """
    check_choice("name", name, _PLANETOID)
    try:
        from torch_geometric.datasets import Planetoid
    except ImportError as error:
        raise DatasetError(f"pyg:{name} needs torch_geometric: pip install 'onehop[pyg]'.") from error
    root = store.folder() / "pyg"
    try:
        collection = Planetoid(str(root), name)
    except OSError as error:
        raise _download_failed(f"pyg:{name}", root, error) from error
    data = collection[0]
    return Dataset(
        name=f"pyg:{name}",
        edge_index=data.edge_index,
        num_nodes=data.num_nodes,
        x=data.x,
        y=data.y,
        num_classes=collection.num_classes,
        train_mask=data.train_mask,
        val_mask=data.val_mask,
        test_mask=data.test_mask,
    )


def ogb(name: str) -> Dataset:
    """Load a graph of the Open Graph Benchmark, with its split and both directions of every edge.

    The ``ogb`` package downloads it if needed; later calls read a copy in onehop's own format.

    Args:
        name: ``ogbn-arxiv`` or ``ogbn-products``.

    Raises:
        ArgumentError: There is no graph of this name.
        DatasetError: ogb is not installed, or the download failed.
    """
    check_choice("name", name, _OGB)
    return store.kept(f"ogb-{name}", lambda: _from_ogb(name))


def _from_ogb(name: str) -> Dataset:
    try:
        from ogb.nodeproppred import NodePropPredDataset
    except ImportError as error:
        raise DatasetError(f"ogb:{name} needs the ogb package: pip install 'onehop[datasets]'.") from error
    root = store.folder() / "ogb"
    try:
        collection = NodePropPredDataset(name, root=str(root))
    except OSError as error:
        raise _download_failed(f"ogb:{name}", root, error) from error
    graph, labels = collection[0]
    num_nodes = int(graph["num_nodes"])
    parts = collection.get_idx_split()
    masks = []
    for part in ("train", "valid", "test"):
        mask = torch.zeros(num_nodes, dtype=torch.bool, device="cpu")
        mask[torch.as_tensor(parts[part], device="cpu")] = True
        masks.append(mask)
    return Dataset(
        name=f"ogb:{name}",
        edge_index=undirected(torch.from_numpy(np.asarray(graph["edge_index"], dtype=np.int64)), num_nodes),
        num_nodes=num_nodes,
        x=torch.from_numpy(np.asarray(graph["node_feat"], dtype=np.float32)),
        y=torch.from_numpy(np.asarray(labels, dtype=np.int64).reshape(-1)),
        num_classes=int(collection.num_classes),
        **Split(*masks)._asdict(),
    )


def _download_failed(what: str, root: Path, error: OSError) -> DatasetError:
    return DatasetError(
        f"{what} could not be downloaded to {root}: {error}. Check the network, or copy the folder from a "
        "machine that has it; the twins (twin:arxiv, twin:cora, ...) need no network."
    )
