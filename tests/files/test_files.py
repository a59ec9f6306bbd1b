"""Files of every format: what is written comes back, in the same order."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from hypothesis import given, strategies as st

from onehop import ArgumentError, Graph, datasets, files
from onehop.files.formats import number_lines
from onehop.files.formats.number_lines import Fields

EDGES = [[2, 0, 2, 1], [1, 0, 1, 3]]


@pytest.fixture
def matrix(rng: np.random.Generator) -> scipy.sparse.coo_array:
    return scipy.sparse.random_array((30, 20), density=0.1, rng=rng)


def read_text(folder: Path, name: str, text: str) -> files.FileContent:
    (folder / name).write_text(text)
    return files.read(str(folder / name))


def npz(folder: Path, **arrays: object) -> Path:
    np.savez(folder / "graph.npz", **arrays)
    return folder / "graph.npz"


def dense_of(content: files.FileContent) -> np.ndarray:
    """The matrix [num_dst, num_src] that the edges and weights stand for."""
    result = np.zeros((content.size[1], content.size[0]), dtype=np.float32)
    weight = 1 if content.weight is None else content.weight.numpy()
    np.add.at(result, tuple(content.edge_index.numpy()[::-1]), weight)
    return result


@pytest.mark.parametrize(
    "text",
    [
        "2 1\n0 0\n2 1\n1 3\n",
        "2 1\n0 0\n2 1\n1 3",
        "2\t1\n0\t0\n2\t1\n1\t3\n",
        "2,1\n0,0\n2,1\n1,3\n",
        "2, 1\n0 ,0\n2 , 1\n 1,3 \n",
        "2 1\r\n0 0\r\n2 1\r\n1 3\r\n",
        "\ufeff2,1\n0,0\n2,1\n1,3\n",
        "# nodes and edges\n% more\n\n2 1\n0 0 # the loop\n\n2 1\n1 3\n#end",
        "source,target\n2,1\n0,0\n2,1\n1,3\n",
        "# comment\nfrom to\n2 1\n0 0\n2 1\n1 3\n",
        '"source node","target node"\n2,1\n0,0\n2,1\n1,3\n',
        "002 1\n0 0\n2   1\n1 3\n\n\n",
        "+2 1\n0 +0\n+2 +1\n1 3\n",
        "2,1\n0 0\n2, 1\n1\t3\n",
        "2 1\r\r\n0 0\r\r\n2 1\r\r\n1 3\r\r\n",
        "source,target,none\n\n# none has data\n2,1\n0,0\n2,1\n1,3\n",
    ],
    ids=[
        "spaces", "no last newline", "tabs", "commas", "commas and spaces", "windows", "byte order mark",
        "comments", "header", "header after a comment", "quoted header", "odd spacing", "plus signs",
        "some lines with commas", "windows twice", "header of other columns",
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", [".txt", ".csv", ".TSV", ".txt.gz", ".csv.GZ"])
def test_edge_list(tmp_path: Path, text: str, ending: str) -> None:
    path = tmp_path / f"some.graph{ending}"
    opened = gzip.open if ending.lower().endswith(".gz") else open
    with opened(path, "wb") as file:
        file.write(text.encode())
    content = files.read(path)
    assert content.edge_index.tolist() == EDGES
    assert content.edge_index.dtype == torch.int64
    assert content.size == (4, 4)
    assert content.weight is None


@pytest.mark.parametrize(
    "text",
    ["0 1 0.5\n1 0 -2e3\n3 3 nan\n0 1 7\n", "a,b,w\n0,1,.5\n1,0,-2000\n3,3,NaN\n0,1,+7.0\n"],
    ids=["spaces", "header and commas"],
)
def test_edge_list_with_weights(tmp_path: Path, text: str) -> None:
    content = read_text(tmp_path, "weights.txt", text)
    assert content.edge_index.tolist() == [[0, 1, 3, 0], [1, 0, 3, 1]]
    torch.testing.assert_close(content.weight, torch.tensor([0.5, -2000, float("nan"), 7]), equal_nan=True)


def test_weights_too_large_for_single_precision_are_infinite(tmp_path: Path) -> None:
    content = read_text(tmp_path, "weights.csv", "0,1,1e39\n1,0,-1e39\n")
    assert content.weight.tolist() == [float("inf"), float("-inf")]


def test_a_signalling_nan_is_nan(tmp_path: Path) -> None:
    arrays = {"row": [0, 1], "col": [1, 0], "data": np.array([0x7FF0000000000001, 0], np.uint64).view(float)}
    content = files.read(npz(tmp_path, format=b"coo", shape=(2, 2), **arrays))
    torch.testing.assert_close(content.weight, torch.tensor([torch.nan, 0]), equal_nan=True)


def test_a_list_of_many_blocks_is_whole(tmp_path: Path, rng, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_lines, "_BLOCK_BYTES", 997)
    edges = rng.integers(0, 100_000, (5000, 2))
    content = read_text(tmp_path, "blocks.csv", "".join(f"{a},{b}\n" for a, b in edges.tolist()))
    np.testing.assert_array_equal(content.edge_index.numpy(), edges.T)


def test_comments_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_lines, "_BLOCK_BYTES", 64)
    text = "# a long comment line that says nothing at all of any use\n" * 20 + "x y\n1 2\n" + "#\n" * 99
    assert read_text(tmp_path, "comments.txt", text).edge_index.tolist() == [[1], [2]]


separators = st.sampled_from([" ", "\t", ",", ", ", "  ", " ,"])
weights = st.floats(allow_nan=False, width=32).map(repr) | st.integers(-5, 10**6).map(str)


fields = st.sampled_from([Fields(2, 0), Fields(2, 1), Fields(2, 2), Fields(1, 0), Fields(0, 1)])


@given(st.data(), fields)
def test_blocks_are_read_as_lines_are(data: st.DataObject, fields: Fields) -> None:
    numbers = st.lists(st.integers(0, 2**31 - 2).map(str), min_size=fields.numbers, max_size=fields.numbers)
    values = st.lists(weights, min_size=fields.values, max_size=fields.values)
    row = st.tuples(numbers, values, separators, st.sampled_from(["\n", "\r\n"]))
    lines = data.draw(st.lists(row, min_size=1, max_size=8))
    separator_of = data.draw(st.sampled_from([None, ",", "\t"]))
    text = "".join((separator_of or own).join([*first, *rest]) + end for first, rest, own, end in lines)
    block = text.encode()
    slow = number_lines.parse_lines(Path("x"), block, fields, 1)
    fast = number_lines.parse_block(block, fields)
    # Commas in some lines alone are left to the slow form.
    assert fast is not None or separator_of is None
    for quick, careful in zip(fast or slow, slow, strict=True):
        np.testing.assert_array_equal(quick, careful)


@given(
    st.binary(max_size=60)
    | st.text("0123456789,. \n\r\t-e+na#", max_size=60).map(str.encode)
    | st.lists(st.sampled_from(["1", "2", " ", ",", "\n", "+", "-", "nan", ".", "e", "\r"])).map(
        lambda parts: "".join(parts).encode()
    ),
    fields,
)
def test_blocks_never_take_what_lines_refuse(text: bytes, fields: Fields) -> None:
    block = text + b"\n"
    fast = number_lines.parse_block(block, fields)
    if fast is not None:
        slow = number_lines.parse_lines(Path("x"), block, fields, 1)
        for quick, careful in zip(fast, slow, strict=True):
            np.testing.assert_array_equal(quick, careful)


@pytest.mark.parametrize(("symmetry", "sign"), [("symmetric", 1), ("skew-symmetric", -1)])
def test_symmetric_matrix_market_goes_both_ways(tmp_path: Path, symmetry: str, sign: int) -> None:
    loop = "3 3 4\n" if sign == 1 else ""
    banner = f"%%MatrixMarket matrix coordinate real {symmetry}\n3 3 {3 if loop else 2}\n"
    content = read_text(tmp_path, "half.mtx", f"{banner}2 1 5\n3 1 6\n{loop}")
    expected = np.array([[0, sign * 5, sign * 6], [5, 0, 0], [6, 0, 4 if loop else 0]], dtype=np.float32)
    np.testing.assert_array_equal(dense_of(content), expected)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_scipy_npz_has_the_order_of_from_scipy(
    tmp_path: Path, matrix: scipy.sparse.coo_array, kind: str
) -> None:
    path = tmp_path / "matrix.npz"
    scipy.sparse.save_npz(path, matrix.asformat(kind))
    by_scipy = Graph.from_scipy(matrix.asformat(kind))
    assert torch.equal(files.read(path).edge_index, by_scipy.edge_index())


def adjacency_arrays() -> dict[str, np.ndarray]:
    """Three nodes, edges 1 -> 0, 2 -> 0, 0 -> 2, four features, two classes."""
    return {
        "adj_data": np.ones(3, dtype=np.float32),
        "adj_indices": np.array([1, 2, 0], dtype=np.int32),
        "adj_indptr": np.array([0, 2, 2, 3], dtype=np.int32),
        "adj_shape": np.array([3, 3]),
        "attr_data": np.array([1, 0.5, 1], dtype=np.float32),
        "attr_indices": np.array([3, 0, 1], dtype=np.int32),
        "attr_indptr": np.array([0, 1, 1, 3], dtype=np.int32),
        "attr_shape": np.array([3, 4]),
        "labels": np.array([1, 0, 1], dtype=np.int8),
    }


def test_npz_with_adjacency_and_attributes(tmp_path: Path) -> None:
    content = files.read(npz(tmp_path, **adjacency_arrays()))
    assert content.edge_index.tolist() == [[1, 2, 0], [0, 0, 2]]
    assert content.weight is None
    assert content.x.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0.5, 1, 0, 0]]
    assert content.y.tolist() == [1, 0, 1]
    assert content.num_classes == 2
    assert content.train_masks is None


def test_npz_with_adjacency_alone_and_weights(tmp_path: Path) -> None:
    arrays = {name: array for name, array in adjacency_arrays().items() if name.startswith("adj_")}
    arrays["adj_data"] = np.array([1, 2, 3.0])
    content = files.read(npz(tmp_path, **arrays))
    assert content.weight.tolist() == [1, 2, 3]
    assert (content.x, content.y, content.num_classes) == (None, None, 0)


def edges_arrays() -> dict[str, np.ndarray]:
    """Four nodes, three undirected edges of which one is a loop and one is stored both ways, two splits."""
    train = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], dtype=bool)
    return {
        "edges": np.array([[0, 1], [2, 2], [3, 1], [1, 3]]),
        "node_features": np.arange(8, dtype=np.float64).reshape(4, 2),
        "node_labels": np.array([0, 1, 2, 1]),
        "train_masks": train,
        "val_masks": np.roll(train, 1, axis=1),
        "test_masks": np.roll(train, 2, axis=1),
    }


def test_npz_with_edges_goes_both_ways_once(tmp_path: Path) -> None:
    content = files.read(npz(tmp_path, **edges_arrays()))
    assert content.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 3], [2, 2], [3, 1]]
    assert content.x.dtype == torch.float32
    assert content.x[3].tolist() == [6, 7]
    assert content.num_classes == 3
    assert content.train_masks.tolist() == [[True, False, False, False], [False, True, False, False]]


@pytest.mark.parametrize("keep", [("edges",), ("edges", "node_labels")], ids=["edges", "labels"])
def test_npz_with_edges_and_less(tmp_path: Path, keep: tuple[str, ...]) -> None:
    content = files.read(npz(tmp_path, **{name: edges_arrays()[name] for name in keep}))
    assert content.size == (4, 4)
    assert content.x is None
    assert content.train_masks is None


def test_mat(tmp_path: Path, matrix: scipy.sparse.coo_array) -> None:
    path = tmp_path / "matrix.mat"
    scipy.io.savemat(path, {"A": scipy.sparse.csc_matrix(matrix)})
    content = files.read(path)
    assert content.size == (20, 30)
    assert content.x is None
    np.testing.assert_allclose(dense_of(content), matrix.toarray().astype(np.float32))


def test_mat_with_local_info(tmp_path: Path) -> None:
    gender = np.array([1, 2, 0, 2] * 10)
    year = np.array([2004, 0, 2005, 2005] * 10)
    rare = np.arange(40) // 9  # 0 is missing, 1 to 3 have nine nodes each, 4 has four
    path = tmp_path / "people.mat"
    ones = scipy.sparse.csc_matrix(np.ones((40, 40)))
    scipy.io.savemat(
        path, {"A": ones, "local_info": np.stack([year, gender, rare], axis=1).astype(np.uint16)}
    )
    content = files.read(path)
    assert content.weight is None
    assert content.y[:4].tolist() == [0, 1, -1, 1]
    assert content.num_classes == 2
    assert content.x[:4].tolist() == [[1, 0], [0, 0], [0, 1], [0, 1]]


def test_graphs_are_loaded_from_files(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("2 1\n0 0\n2 1\n1 3\n")
    graph = Graph.load(path)
    assert graph.edge_index().tolist() == EDGES
    assert graph.num_dst == 4


def test_a_data_set_from_a_file_goes_both_ways_and_is_split(tmp_path: Path) -> None:
    path = npz(tmp_path, **adjacency_arrays())
    dataset = datasets.from_file(path)
    assert dataset.name == "graph.npz"
    assert dataset.edge_index.t().tolist() == [[0, 1], [0, 2], [1, 0], [2, 0]]
    masks = torch.stack([dataset.train_mask, dataset.val_mask, dataset.test_mask])
    assert masks.sum(dim=0).tolist() == [1, 1, 1]
    assert masks.sum(dim=1).tolist() == [2, 0, 1]
    again = datasets.from_file(path)
    assert torch.equal(again.train_mask, dataset.train_mask)


def test_a_split_of_the_file_is_chosen(tmp_path: Path) -> None:
    path = npz(tmp_path, **edges_arrays())
    assert datasets.from_file(path).train_mask.tolist() == [True, False, False, False]
    assert datasets.from_file(path, split=1).train_mask.tolist() == [False, True, False, False]
    with pytest.raises(ArgumentError, match=r"split: .* has 2 \(from 0\), got 2"):
        datasets.from_file(path, split=2)


def test_nodes_without_a_label_belong_to_no_part(tmp_path: Path) -> None:
    path = npz(tmp_path, edges=np.array([[0, 1], [2, 3]]), node_labels=np.array([0, -1, 1, 0]))
    dataset = datasets.from_file(path)
    assert (dataset.train_mask | dataset.val_mask | dataset.test_mask).tolist() == [True, False, True, True]


def test_a_data_set_without_labels_has_no_split(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n")
    dataset = datasets.from_file(path)
    assert (dataset.x, dataset.y, dataset.train_mask, dataset.num_classes) == (None, None, None, 0)


def test_a_bipartite_file_is_no_data_set(tmp_path: Path, matrix: scipy.sparse.coo_array) -> None:
    path = tmp_path / "matrix.npz"
    scipy.sparse.save_npz(path, matrix)
    with pytest.raises(ArgumentError, match="bipartite"):
        datasets.from_file(path)


def test_a_matrix_without_entries_is_a_graph_without_edges(tmp_path: Path) -> None:
    for kind in ("csr", "csc", "coo"):
        path = tmp_path / f"{kind}.npz"
        scipy.sparse.save_npz(path, scipy.sparse.coo_array((3, 3)).asformat(kind))
        assert files.read(path).edge_index.shape == (2, 0)
        dataset = datasets.from_file(path)
        assert (dataset.num_nodes, dataset.num_edges) == (3, 0)
    text = "%%MatrixMarket matrix coordinate pattern general\n% nothing\n2 3 0\n"
    assert read_text(tmp_path, "empty.mtx", text).size == (3, 2)
    path = tmp_path / "empty.mat"
    scipy.io.savemat(path, {"A": scipy.sparse.csc_matrix((3, 3))})
    assert Graph.load(path).num_edges == 0


def test_a_logical_matrix_has_no_weights(tmp_path: Path, matrix: scipy.sparse.coo_array) -> None:
    path = tmp_path / "logical.mat"
    scipy.io.savemat(
        path, {"A": scipy.sparse.csc_matrix(matrix != 0), "B": "text", "C": 3.0, "D": np.eye(2) * 1j}
    )
    content = files.read(path)
    assert content.weight is None
    np.testing.assert_array_equal(dense_of(content), matrix.toarray() != 0)
