"""Stand-ins for data sets whose nodes or edges have types."""

import torch
from torch_geometric.data import Data, HeteroData, TemporalData

from benchmarks.examples import graphs
from benchmarks.examples.stand_in import Function, StandIn

# Nodes, edges and relations (both directions), classes, and labelled nodes for training and testing.
ENTITIES = {
    "aifb": (8_285, 58_086, 90, 4, 140, 36),
    "mutag": (23_644, 148_454, 46, 2, 272, 68),
}
# Nodes and relations of FB15k-237; a tenth of its edges.
FREEBASE_NODES, FREEBASE_RELATIONS = 14_541, 237
FREEBASE_EDGES = {"train": 27_211, "valid": 1_753, "test": 2_046}
IMDB_WORDS = 3_066
IMDB_NODES = {"movie": 4_278, "director": 2_081, "actor": 5_257}
IMDB_EDGES = {("movie", "director"): 4_278, ("movie", "actor"): 3 * 4_278}
DBLP_FEATURES = {"author": 334, "paper": 4_231, "term": 50}
DBLP_NODES = {"author": 4_057, "paper": 14_328, "term": 7_723, "conference": 20}
DBLP_EDGES = {("author", "paper"): 19_645, ("paper", "term"): 85_810, ("paper", "conference"): 14_328}
# Of 3,257 or more nodes that are left, those for testing.
TRAINING, VALIDATION, TESTING = 400, 400, 3_257
MOVIES, MOVIE_FEATURES, USERS, RATINGS = 9_742, 404, 610, 100_836
# A twentieth of Amazon-Book.
READERS, BOOKS, READ, READ_LATER = 2_632, 4_580, 119_036, 30_168
# A fiftieth of ogbn-mag.
MAG_NODES = {"paper": 14_728, "author": 22_693, "institution": 175, "field_of_study": 1_199}
MAG_EDGES = {
    ("author", "affiliated_with", "institution"): 20_880,
    ("author", "writes", "paper"): 142_913,
    ("paper", "has_topic", "field_of_study"): 150_102,
}
MAG_CITATIONS, MAG_FEATURES, MAG_CLASSES = 108_325, 128, 349
TRUST_NODES, TRUST_GRAPHS, TRUST_EDGES = 6_005, 10, 35_592
# A tenth of the events of JODIE's Wikipedia.
EDITORS, PAGES, EDITS, EDIT_FEATURES = 8_227, 1_000, 15_747, 172


class Entities(StandIn):
    """AIFB or MUTAG: typed edges, and classes of a few nodes."""

    def __init__(self, root: str, name: str, **transforms: Function) -> None:
        nodes, edges, relations, self._classes, training, testing = ENTITIES[name.lower()]
        self._relations, generator = relations, graphs.seeded("Entities", name.lower())
        edge_index, y = graphs.labelled(nodes, edges, self._classes, generator)
        # A relation and its reverse are two types.
        forward = edge_index[0] < edge_index[1]
        low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
        edge_type = 2 * ((low * 7 + high * 3 + y[low]) % (relations // 2)) + forward.long()
        order = torch.randperm(nodes, generator=generator)
        train, test = order[:training], order[training : training + testing]
        data = Data(edge_index=edge_index, edge_type=edge_type, num_nodes=nodes)
        data.train_idx, data.train_y, data.test_idx, data.test_y = train, y[train], test, y[test]
        super().__init__([data], **transforms)

    @property
    def num_classes(self) -> int:
        """As PyG's data set has it."""
        return self._classes

    @property
    def num_relations(self) -> int:
        """As PyG's data set has it."""
        return self._relations


class RelLinkPredDataset(StandIn):
    """FB15k-237, with a tenth of its edges."""

    def __init__(self, root: str, name: str, **transforms: Function) -> None:
        generator = graphs.seeded("RelLinkPredDataset", name)
        data = Data(num_nodes=FREEBASE_NODES)
        for split, edges in FREEBASE_EDGES.items():
            pairs, _ = graphs.labelled(FREEBASE_NODES, edges, 20, generator, directed=True)
            data[f"{split}_edge_index"] = pairs
            data[f"{split}_edge_type"] = graphs.uneven(FREEBASE_RELATIONS, pairs.size(1), generator)
        pairs, kinds = data.train_edge_index, data.train_edge_type
        data.edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
        data.edge_type = torch.cat([kinds, kinds + FREEBASE_RELATIONS])
        super().__init__([data], **transforms)

    @property
    def num_relations(self) -> int:
        """As PyG's data set has it: with the reverse ones."""
        return 2 * FREEBASE_RELATIONS


class IMDB(StandIn):
    """Movies, their directors and actors; movies have classes."""

    def __init__(self, root: str, **transforms: Function) -> None:
        features = dict.fromkeys(IMDB_NODES, IMDB_WORDS)
        super().__init__([_of_types("IMDB", IMDB_NODES, features, IMDB_EDGES, 3, 20)], **transforms)


class DBLP(StandIn):
    """Authors, papers, terms and conferences; authors have classes."""

    def __init__(self, root: str, **transforms: Function) -> None:
        super().__init__([_of_types("DBLP", DBLP_NODES, DBLP_FEATURES, DBLP_EDGES, 4, 8)], **transforms)


class MovieLens(StandIn):
    """Users who rate movies: whole stars, 1 to 5."""

    def __init__(self, root: str, model_name: str | None = None, **transforms: Function) -> None:
        generator, data = graphs.seeded("MovieLens"), HeteroData()
        data["movie"].x = torch.randn(MOVIES, MOVIE_FEATURES, generator=generator)
        data["user"].num_nodes = USERS
        pairs = graphs.between(USERS, MOVIES, RATINGS, generator)
        rates = data["user", "rates", "movie"]
        rates.edge_index = pairs
        rates.edge_label = 1 + (pairs.sum(dim=0) + graphs.choices(3, RATINGS, generator)) % 5
        rates.time = graphs.choices(10**9, RATINGS, generator)
        super().__init__([data], **transforms)


class AmazonBook(StandIn):
    """Readers and books, at a twentieth."""

    def __init__(self, root: str, **transforms: Function) -> None:
        generator, data = graphs.seeded("AmazonBook"), HeteroData()
        data["user"].num_nodes, data["book"].num_nodes = READERS, BOOKS
        pairs = graphs.between(READERS, BOOKS, READ, generator)
        data["user", "rates", "book"].edge_index = pairs
        data["book", "rated_by", "user"].edge_index = pairs.flip(0)
        later = graphs.between(READERS, BOOKS, READ_LATER, generator)
        data["user", "rates", "book"].edge_label_index = later
        super().__init__([data], **transforms)


class OGB_MAG(StandIn):
    """Papers, their authors, institutions and topics, at a fiftieth; all have features, papers a year."""

    def __init__(self, root: str, preprocess: str | None = None, **transforms: Function) -> None:
        if preprocess is None:
            raise NotImplementedError(
                "preprocess: expected a method that gives all nodes features; got None."
            )
        generator, data = graphs.seeded("OGB_MAG"), HeteroData()
        papers = MAG_NODES["paper"]
        for kind, nodes in MAG_NODES.items():
            data[kind].x = torch.randn(nodes, MAG_FEATURES, generator=generator)
        pairs, y = graphs.labelled(papers, MAG_CITATIONS, MAG_CLASSES, generator, directed=True)
        data["paper", "cites", "paper"].edge_index, data["paper"].y = pairs, y
        data["paper"].year = 2010 + graphs.choices(10, papers, generator)
        for relation, edges in MAG_EDGES.items():
            source, _, target = relation
            found = graphs.between(MAG_NODES[source], MAG_NODES[target], edges, generator)
            data[relation].edge_index = found
        # As in ogbn-mag, 86 % of the papers are for training.
        shares = round(0.86 * papers), round(0.08 * papers), round(0.05 * papers)
        for name, found in graphs.masks(papers, shares, generator).items():
            data["paper"][name] = found
        super().__init__([data], **transforms)

    @property
    def num_classes(self) -> int:
        """As PyG's data set has it."""
        return MAG_CLASSES


class BitcoinOTC(StandIn):
    """Who trusts whom: graphs of one set of nodes, with marks from -10 to 10."""

    def __init__(self, root: str, edge_window_size: int = 10, **transforms: Function) -> None:
        generator = graphs.seeded("BitcoinOTC")
        pairs, group = graphs.labelled(TRUST_NODES, TRUST_EDGES, 2, generator, directed=True)
        alike = group[pairs[0]] == group[pairs[1]]
        marks = (1 + graphs.choices(10, pairs.size(1), generator)) * torch.where(alike, 1, -1)
        order = torch.randperm(pairs.size(1), generator=generator)
        made = [
            Data(edge_index=pairs[:, part], edge_attr=marks[part], num_nodes=TRUST_NODES)
            for part in order.chunk(TRUST_GRAPHS)
        ]
        super().__init__(made, **transforms)


class JODIEDataset(StandIn):
    """Edits of pages in the order of time: a tenth of Wikipedia's."""

    def __init__(self, root: str, name: str, **transforms: Function) -> None:
        generator = graphs.seeded("JODIEDataset", name)
        source = graphs.uneven(EDITORS, EDITS, generator)
        page = (source + graphs.choices(50, EDITS, generator)) % PAGES
        data = TemporalData(
            src=source,
            dst=EDITORS + page,
            t=graphs.choices(2_600_000, EDITS, generator).sort().values,
            msg=torch.randn(EDITS, EDIT_FEATURES, generator=generator),
            y=torch.zeros(EDITS),
        )
        super().__init__([data], **transforms)


def _of_types(
    name: str,
    nodes: dict[str, int],
    features: dict[str, int],
    edges: dict[tuple[str, str], int],
    classes: int,
    words: int,
) -> HeteroData:
    """A graph whose first type of nodes has classes, with masks, and edges that go both ways.

    Args:
        name: What seeds it.
        nodes: How many of each type.
        features: Their widths; types that are not among them have no features.
        edges: How many between two types.
        classes: How many.
        words: Of a node.
    """
    generator, data = graphs.seeded(name), HeteroData()
    first = next(iter(nodes))
    for kind, count in nodes.items():
        if kind not in features:
            data[kind].num_nodes = count
            continue
        y = graphs.choices(classes, count, generator)
        data[kind].x = graphs.words(y, features[kind], words, generator)
        if kind == first:
            data[kind].y = y
    shares = TRAINING, VALIDATION, min(TESTING, nodes[first] - TRAINING - VALIDATION)
    for mask, found in graphs.masks(nodes[first], shares, generator).items():
        data[first][mask] = found
    for (source, target), count in edges.items():
        # Each pair once, as in the real sets: products of sparse matrices in torch take no entry twice.
        pairs = graphs.between(nodes[source], nodes[target], count, generator)
        pairs = pairs.unique(dim=1).contiguous()
        data[source, target].edge_index = pairs
        data[target, source].edge_index = pairs.flip(0)
    return data
