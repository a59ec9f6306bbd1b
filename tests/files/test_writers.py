"""What SciPy, SuiteSparse, NetworkX, OGB and SNAP write is read back equal, or refused with a sentence."""

import gzip
import shutil
from pathlib import Path

import networkx
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from onehop import ArgumentError, FileFormatError, Graph, datasets, files
from tests.pairs import pairwise

from .test_files import dense_of

DTYPES = ("float64", "float32", "int8", "int64", "uint8", "uint64", "bool")


def matrix_of(dtype: str, rows: int = 12, columns: int = 8) -> np.ndarray:
    """A dense matrix with many zeros, and an empty last row and column."""
    rng = np.random.default_rng(3)
    dense = rng.integers(1, 100, (rows, columns)) * (rng.random((rows, columns)) < 0.3)
    dense[-1] = dense[:, -1] = 0
    return dense.astype(dtype)


def assert_is(content: files.FileContent, dense: np.ndarray) -> None:
    """Compares edges, each once, and weights with the non-zeros of a matrix."""
    assert content.size == dense.shape[::-1]
    assert content.edge_index.size(1) == np.count_nonzero(dense)
    assert (content.weight is None) == bool((dense[dense != 0] == 1).all())
    np.testing.assert_array_equal(dense_of(content), dense.astype(np.float32))


def read_npz(folder: Path, matrix: object, compressed: bool = True) -> files.FileContent:
    scipy.sparse.save_npz(folder / "matrix.npz", matrix, compressed=compressed)
    return files.read(folder / "matrix.npz")


@pairwise(kind=["csr", "csc", "coo", "bsr", "dia"], container=["array", "matrix"], dtype=DTYPES)
def test_save_npz(tmp_path: Path, kind: str, container: str, dtype: str) -> None:
    dense = matrix_of(dtype)
    matrix = getattr(scipy.sparse, f"coo_{container}")(dense).asformat(kind)
    for name in {"indices", "indptr", "row", "col", "offsets"} & set(vars(matrix)):
        setattr(matrix, name, getattr(matrix, name).astype(np.int64))
    assert_is(read_npz(tmp_path, matrix, container == "array"), dense)


def test_blocks_and_diagonals_are_in_stored_order(tmp_path: Path) -> None:
    dense = np.array([[1, 0, 0, 2], [0, 3, 4, 0]])
    blocks, diagonals = scipy.sparse.coo_array(dense).tobsr((2, 2)), scipy.sparse.dia_array(dense)
    assert read_npz(tmp_path, blocks).weight.tolist() == [1, 3, 2, 4]
    assert read_npz(tmp_path, diagonals).weight.tolist() == [1, 3, 4, 2]


@pytest.mark.parametrize("offsets", [[-9, 0, 9], [1, -1]], ids=str)
def test_diagonals_that_reach_outside(tmp_path: Path, offsets: list[int]) -> None:
    data = np.arange(1, 1 + 6 * len(offsets)).reshape(len(offsets), 6)
    matrix = scipy.sparse.dia_array((data, offsets), shape=(3, 4))
    assert_is(read_npz(tmp_path, matrix), matrix.toarray())


def test_coordinates_in_one_array(tmp_path: Path) -> None:
    path = tmp_path / "matrix.npz"
    np.savez(path, format=b"coo", shape=(2, 3), data=[4, 5], coords=[[0, 1], [2, 0]])
    assert_is(files.read(path), scipy.sparse.load_npz(path).toarray())


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_complex_matrices_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(FileFormatError, match=r"real number.*complex128.*as in matrix\.real"):
        read_npz(tmp_path, scipy.sparse.coo_array(np.eye(3) * 1j).asformat(kind))


def symmetric(dense: np.ndarray, symmetry: str) -> np.ndarray:
    if symmetry == "skew-symmetric":
        return dense - dense.T
    return dense if symmetry == "general" else dense + dense.T


FIELDS = {"real": "float64", "integer": "int64", "unsigned-integer": "uint64", "pattern": "int64"}


def has_banner(layout: str, field: str, symmetry: str) -> bool:
    return (layout, field) != ("array", "pattern") and (
        symmetry != "skew-symmetric" or field in ("real", "integer")
    )


@pairwise(
    layout=["coordinate", "array"],
    field=FIELDS,
    symmetry=["general", "symmetric", "hermitian", "skew-symmetric"],
    ending=[".mtx", ".mtx.gz"],
    where=has_banner,
)
def test_mmwrite(tmp_path: Path, layout: str, field: str, symmetry: str, ending: str) -> None:
    dense = symmetric(matrix_of(FIELDS[field], 9, 9), symmetry)
    path = tmp_path / "matrix.mtx"
    scipy.io.mmwrite(
        path,
        dense if layout == "array" else scipy.sparse.coo_array(dense),
        comment="a comment of 100 %\n% and\n\nanother",
        field=None if field == "unsigned-integer" else field,
        symmetry=symmetry,
    )
    assert path.read_text().startswith(f"%%MatrixMarket matrix {layout} {field} {symmetry}\n")
    content = files.read(compressed(path) if ending == ".mtx.gz" else path)
    assert_is(content, dense != 0 if field == "pattern" else dense)


def compressed(path: Path) -> Path:
    result = path.with_name(f"{path.name}.gz")
    with path.open("rb") as source, gzip.open(result, "wb") as target:
        shutil.copyfileobj(source, target)
    return result


@pytest.mark.parametrize("dense", [True, False])
def test_mmwrite_of_complex_numbers_is_refused(tmp_path: Path, dense: bool) -> None:
    path = tmp_path / "matrix.mtx"
    matrix = np.eye(3) * 1j
    scipy.io.mmwrite(path, matrix if dense else scipy.sparse.coo_array(matrix))
    with pytest.raises(FileFormatError, match=r"real numbers.*complex symmetric.*the real parts"):
        files.read(path)


def test_mmwrite_of_nothing(tmp_path: Path) -> None:
    for name, matrix in (("sparse", scipy.sparse.coo_array((3, 2))), ("dense", np.zeros((3, 2)))):
        path = tmp_path / f"{name}.mtx"
        scipy.io.mmwrite(path, matrix)
        assert_is(files.read(path), np.zeros((3, 2)))


def test_stored_zeros_of_sparse_matrices_are_edges(tmp_path: Path) -> None:
    """As in the MatrixMarket files of SuiteSparse, which store the zeros that MATLAB would drop."""
    path = tmp_path / "matrix.mtx"
    scipy.io.mmwrite(path, scipy.sparse.coo_array(([0.0, 2.0], ([0, 1], [1, 0])), shape=(2, 2)))
    content = files.read(path)
    assert content.edge_index.tolist() == [[1, 0], [0, 1]]
    assert content.weight.tolist() == [0, 2]


@pytest.mark.parametrize("wrapped", [False, True], ids=["matrix", "Problem"])
@pytest.mark.parametrize("do_compression", [False, True], ids=["stored", "compressed"])
@pairwise(dtype=DTYPES)
def test_savemat(tmp_path: Path, dtype: str, do_compression: bool, wrapped: bool) -> None:
    path = tmp_path / "matrix.mat"
    dense = matrix_of(dtype)
    matrix = scipy.sparse.csc_array(dense)
    problem = {
        "name": "Group/name",
        "title": "A graph",
        "A": matrix,
        "Zeros": scipy.sparse.csc_array(np.eye(12, 8)),
        "id": 7.0,
        "notes": np.array(["two", "lines"]),
        "aux": {"coord": np.ones((12, 2)), "A": scipy.sparse.csc_array(np.eye(2))},
        "cell": np.array([1, "x"], dtype=object),
    }
    scipy.io.savemat(path, {"Problem": problem} if wrapped else {"A": matrix}, do_compression=do_compression)
    assert_is(files.read(path), dense)
    assert_is(files.read(path, key="Problem.A" if wrapped else "A"), dense)


@pytest.mark.parametrize("shape", [(0, 0), (3, 3), (0, 4)], ids=str)
def test_savemat_of_nothing(tmp_path: Path, shape: tuple[int, int]) -> None:
    path = tmp_path / "matrix.mat"
    scipy.io.savemat(path, {"Problem": {"A": scipy.sparse.csc_array(shape)}})
    assert_is(files.read(path), np.zeros(shape))


ONE_HOT = np.eye(4)[[1, 0, 3, 1, 1, 2, 0, 0, 3]]
ONE_HOT[4] = 0
SEVERAL = ONE_HOT + np.eye(9, 4)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    ("group", "labels"),
    [
        (ONE_HOT, [1, 0, 3, 1, -1, 2, 0, 0, 3]),
        (SEVERAL, None),
        (2 * ONE_HOT, None),
        (ONE_HOT[:8], None),
        (ONE_HOT[:, :1], None),
    ],
    ids=["one", "several", "no ones", "other rows", "one column"],
)
def test_the_matrix_of_deepwalks_data(
    tmp_path: Path, group: np.ndarray, labels: list[int] | None, sparse: bool
) -> None:
    path = tmp_path / "blogcatalog.mat"
    network = matrix_of("float64", 9, 9) != 0
    scipy.io.savemat(
        path,
        {
            "network": scipy.sparse.csc_array(network.astype(float)),
            "group": scipy.sparse.csc_array(group) if sparse else group,
        },
    )
    content = files.read(path)
    assert_is(content, network)
    assert (None if content.y is None else content.y.tolist()) == labels
    assert content.num_classes == (0 if labels is None else 4)


def test_several_matrices_are_named_and_chosen(tmp_path: Path) -> None:
    path = tmp_path / "several.mat"
    first, second, wide = matrix_of("float64", 9, 9), np.eye(9), np.eye(2, 3)
    scipy.io.savemat(
        path,
        {
            "one": scipy.sparse.csc_array(first),
            "layers": {"two": scipy.sparse.csc_array(second), "wide": scipy.sparse.csc_array(wide)},
            "dense": first,
        },
    )
    with pytest.raises(FileFormatError, match=r"it has layers\.two, one\. Choose one, as in key='"):
        files.read(path)
    assert_is(files.read(path, key="one"), first)
    assert_is(files.read(path, key="layers.wide"), wide)
    assert Graph.load(path, key="layers.two").num_edges == 9
    assert datasets.from_file(path, key="layers.two").num_nodes == 9
    for key in ("dense", "three", "layers"):
        with pytest.raises(ArgumentError, match=rf"key: .* named {key}; it has dense, layers\.two, layers\."):
            files.read(path, key=key)


def test_several_bipartite_matrices_are_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "several.mat"
    wide = scipy.sparse.csc_array(np.eye(2, 3))
    scipy.io.savemat(path, {"one": wide})
    assert_is(files.read(path), np.eye(2, 3))
    scipy.io.savemat(path, {"one": wide, "two": wide})
    with pytest.raises(FileFormatError, match="it has one, two"):
        files.read(path)


def test_a_key_is_for_mat_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n")
    for load in (files.read, Graph.load, datasets.from_file):
        with pytest.raises(ArgumentError, match=r"key: it names a matrix of a \.mat file, got 'A' for "):
            load(path, key="A")


@pytest.fixture(params=[networkx.Graph, networkx.DiGraph, networkx.MultiDiGraph])
def network(request: pytest.FixtureRequest) -> networkx.Graph:
    return networkx.from_numpy_array(matrix_of("float64", 9, 9), create_using=request.param)


NETWORKX = {
    "no data": lambda graph, path: networkx.write_edgelist(graph, path, data=False),
    "no data, commas": lambda graph, path: networkx.write_edgelist(graph, path, data=False, delimiter=","),
    "weight": lambda graph, path: networkx.write_edgelist(graph, path, data=["weight"], delimiter="\t"),
    "weighted": lambda graph, path: networkx.write_weighted_edgelist(graph, path),
    "dictionaries": lambda graph, path: networkx.write_edgelist(graph, path),
    "dictionaries, commas": lambda graph, path: networkx.write_edgelist(graph, path, delimiter=","),
}


@pairwise(form=NETWORKX, ending=[".txt", ".csv.gz"])
def test_networkx(tmp_path: Path, network: networkx.Graph, form: str, ending: str) -> None:
    path = tmp_path / f"network{ending}"
    NETWORKX[form](network, path)
    content = files.read(path)
    edges = list(network.edges(data="weight"))
    assert content.edge_index.t().tolist() == [[source, target] for source, target, _ in edges]
    weights = None if form.startswith("no data") else [weight for _, _, weight in edges]
    assert (None if content.weight is None else content.weight.tolist()) == weights


@pytest.mark.parametrize(
    ("data", "weight"), [({}, None), ({"weight": np.float64(0.5)}, 0.5), ({"weight": -2e-7}, -2e-7)], ids=str
)
def test_dictionaries_of_networkx(tmp_path: Path, data: dict[str, float], weight: float | None) -> None:
    path = tmp_path / "network.txt"
    networkx.write_edgelist(networkx.DiGraph([(3, 0, data), (0, 3, data)]), path)
    content = files.read(path)
    assert content.edge_index.tolist() == [[3, 0], [0, 3]]
    expected = None if weight is None else [np.float32(weight)] * 2
    assert (None if content.weight is None else content.weight.tolist()) == expected


@pytest.mark.parametrize("data", [{"colour": "red"}, {"weight": 1.0, "year": 2}, {"weight": "x"}], ids=str)
def test_other_dictionaries_are_refused(tmp_path: Path, data: dict[str, object]) -> None:
    path = tmp_path / "network.txt"
    networkx.write_edgelist(networkx.DiGraph([(3, 0, {}), (0, 3, data)]), path)
    with pytest.raises(FileFormatError, match=r"line 2: expected .*data=\['weight'\].*got \"0 3 {"):
        files.read(path)


@pytest.mark.parametrize("write", [networkx.write_adjlist, networkx.write_multiline_adjlist])
def test_lists_of_adjacencies_are_refused(tmp_path: Path, write) -> None:
    """Where every node has two neighbours, such a list looks like weighted edges."""
    path = tmp_path / "network.txt"
    write(networkx.DiGraph([(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]), path)
    with pytest.raises(FileFormatError, match=r"list of adjacencies.*write_edgelist\(graph, path, data=F"):
        files.read(path)


def test_networkx_by_way_of_scipy(tmp_path: Path, network: networkx.Graph) -> None:
    matrix = networkx.to_scipy_sparse_array(network)
    assert_is(read_npz(tmp_path, matrix), matrix.toarray())


def write_ogb(folder: Path, edges: str, nodes: str) -> Path:
    for name, text in (
        ("edge", edges),
        ("num-node-list", nodes),
        ("num-edge-list", f"{edges.count(chr(10))}\n"),
    ):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.write(text)
    return folder / "edge.csv.gz"


def test_ogb(tmp_path: Path) -> None:
    path = write_ogb(tmp_path, "104,0\n3,104\n", "169343\n")
    content = files.read(path)
    assert content.edge_index.tolist() == [[104, 3], [0, 104]]
    assert content.size == (169343, 169343)
    (tmp_path / "num-node-list.csv.gz").unlink()
    assert files.read(path).size == (105, 105)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("2\n3\n", "expected one graph, .* of 2, each numbered from 0"),
        ("", "expected one graph, .* of 0"),
        ("2\n", r"source 2 of edge 1 is not in \[0, 2\)"),
        ("x\n", r"num-node-list\.csv\.gz, line 1: expected node numbers"),
    ],
    ids=["several", "none", "too few", "text"],
)
def test_bad_numbers_of_nodes_of_ogb(tmp_path: Path, nodes: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        files.read(write_ogb(tmp_path, "0,1\n2,1\n", nodes))


SNAP = "# Directed graph (each unordered pair of nodes is saved once): x.txt \n# Nodes: 4 Edges: 3\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("text", "weight"),
    [
        (f"{SNAP}# FromNodeId\tToNodeId\n0\t3\n2\t0\n1\t1\n", None),
        ("0 3\n2  0\n1\t 1 \n", None),
        ("# FromNodeId\tToNodeId\tSign\n0\t3\t-1\n2\t0\t+1\n1\t1\t1\n", [-1, 1, 1]),
        ("0,3,-10,1289241911.72836\n2,0,4,1289241942.53378\n1,1,1,1289243140.39049\n", [-10, 4, 1]),
    ],
    ids=["directed", "blanks", "signed", "ratings with times"],
)
def test_snap(tmp_path: Path, text: str, weight: list[int] | None, end: str) -> None:
    path = tmp_path / "soc-sign.txt"
    path.write_bytes(text.replace("\n", end).encode())
    for file in (path, compressed(path)):
        content = files.read(file)
        assert content.edge_index.tolist() == [[0, 2, 1], [3, 0, 1]]
        assert content.size == (4, 4)
        assert (None if content.weight is None else content.weight.tolist()) == weight


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["matrix.mtx", "matrix.mtx.gz", "edges.txt", "edges.csv.gz"])
def test_byte_order_marks(tmp_path: Path, name: str, encoding: str) -> None:
    text = "%%MatrixMarket matrix coordinate pattern general\n4 4 1\n+4 +1\n" if "mtx" in name else "+0 +3\n"
    path = tmp_path / name
    content = text.encode(encoding)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    if encoding == "utf-16":
        with pytest.raises(FileFormatError, match=r"expected text in UTF-8, got UTF-16\. Save it again"):
            files.read(path)
    else:
        content = files.read(path)
        assert content.edge_index.tolist() == [[0], [3]]
        assert content.size == (4, 4)
