"""The interface of the compiled extension (csrc/bindings/module.cpp). An address of 0 means: omitted."""

from collections.abc import Sequence

from torch import Tensor

class Csr:
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def edges(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def rowptr(self) -> Tensor: ...
    @property
    def col(self) -> Tensor: ...
    @property
    def perm(self) -> Tensor | None: ...
    def free_narrow_col(self) -> None: ...
    def work_items(self, edges_per_item: int) -> list[list[int]]: ...
    def transpose(self, wide_perm: bool, threads: int) -> Csr: ...

def csr_from_coo(
    row: int,
    col: int,
    row_stride: int,
    col_stride: int,
    edges: int,
    wide_index: bool,
    rows: int,
    cols: int,
    wide_perm: bool,
    threads: int,
) -> tuple[Csr | None, int, int]: ...
def with_rows(csr: Csr, order: int, wide_perm: bool, threads: int) -> Csr: ...
def community_order(csr: Csr, order: int) -> None: ...
def aggregate(
    csr: Csr,
    reduce: int,
    dtype: int,
    out_is_acc: bool,
    threads: int,
    prefetch: int,
    keeps_near: bool,
    narrow_index: bool,
    edges_per_item: int,
    column_tile: int,
    register_block: int,
    nontemporal: bool,
    width: int,
    x: int,
    x_stride: int,
    weight: int,
    weight_stride: int,
    weight_in_graph_order: bool,
    weight_adds: bool,
    col_scale: int,
    row_scale: int,
    out: int,
    out_stride: int,
    ties: int,
    generated: int,
    /,
) -> None: ...
def extremum_grad_source(
    csr: Csr,
    dtype: int,
    extremum_is_acc: bool,
    threads: int,
    prefetch: int,
    edges_per_item: int,
    width: int,
    x: int,
    x_stride: int,
    extremum: int,
    extremum_stride: int,
    share: int,
    weight: int,
    weight_stride: int,
    weight_adds: bool,
    out: int,
    /,
) -> None: ...
def extremum_grad_weight(
    csr: Csr,
    dtype: int,
    extremum_is_acc: bool,
    threads: int,
    prefetch: int,
    edges_per_item: int,
    width: int,
    x: int,
    x_stride: int,
    extremum: int,
    extremum_stride: int,
    share: int,
    weight: int,
    weight_stride: int,
    weight_adds: bool,
    out: int,
    /,
) -> None: ...
def arg_extremum(
    csr: Csr,
    dtype: int,
    minimum: bool,
    last: bool,
    threads: int,
    prefetch: int,
    edges_per_item: int,
    width: int,
    x: int,
    x_stride: int,
    weight: int,
    weight_stride: int,
    out: int,
    out_stride: int,
    winner: int,
    winner_stride: int,
    /,
) -> None: ...
def arg_extremum_grad_source(
    csr: Csr,
    dtype: int,
    threads: int,
    width: int,
    grad: int,
    grad_stride: int,
    winner: int,
    winner_stride: int,
    x: int,
    x_stride: int,
    weight: int,
    weight_stride: int,
    out: int,
    out_stride: int,
    /,
) -> None: ...
def arg_extremum_grad_weight(
    csr: Csr,
    dtype: int,
    threads: int,
    width: int,
    grad: int,
    grad_stride: int,
    winner: int,
    winner_stride: int,
    x: int,
    x_stride: int,
    weight: int,
    weight_stride: int,
    out: int,
    out_stride: int,
    /,
) -> None: ...
def sddmm(
    csr: Csr,
    dtype: int,
    out_is_acc: bool,
    threads: int,
    prefetch: int,
    edges_per_item: int,
    width: int,
    row_vectors: int,
    row_stride: int,
    col_vectors: int,
    col_stride: int,
    out: int,
    out_stride: int,
    /,
) -> None: ...
def fusedmm(
    csr: Csr,
    rule: int,
    dtype: int,
    threads: int,
    prefetch: int,
    edges_per_item: int,
    factor: float,
    width: int,
    row_vectors: int,
    row_stride: int,
    col_vectors: int,
    col_stride: int,
    out: int,
    /,
) -> None: ...
def kernel_templates() -> list[tuple[str, str]]: ...
def load_generated(path: str) -> tuple[int, str]: ...
def edge_softmax(
    csr: Csr, dtype: int, threads: int, edges_per_item: int, heads: int, scores: int, out: int, /
) -> None: ...
def edge_softmax_grad(
    csr: Csr,
    dtype: int,
    threads: int,
    edges_per_item: int,
    heads: int,
    softmax: int,
    grad: int,
    out: int,
    /,
) -> None: ...
def copy_rows(
    dtype: int,
    threads: int,
    prefetch: int,
    index: int,
    count: int,
    wide_index: bool,
    row_bytes: int,
    matrix: int,
    stride: int,
    rows: int,
    /,
) -> None: ...
def add_rows(
    dtype: int,
    threads: int,
    prefetch: int,
    index: int,
    count: int,
    wide_index: bool,
    row_bytes: int,
    matrix: int,
    stride: int,
    rows: int,
    /,
) -> None: ...

class AttendCall:
    threads: int
    prefetch: int
    heads: int
    key_width: int
    value_width: int
    value_stride: int
    key_stride: int
    query_stride: int
    edge_stride: int
    edge_width: int
    seed: int
    grad_stride: int
    factor: float
    dropout: float
    weights_masked: bool
    value: int
    key: int
    query: int
    att: int
    edge: int
    edge_weight: int
    mask: int
    out: int
    softmax: int
    weights: int
    grad: int
    grad_weights: int
    weights_product: int
    statistics: int
    grad_query: int
    grad_att: int
    grad_edge: int
    grad_edge_weight: int
    grad_value: int
    grad_key: int

def attend(call: AttendCall, csr: Csr, rule: int, dtype: int, edges_per_item: int, /) -> None: ...
def attend_weights(call: AttendCall, csr: Csr, rule: int, dtype: int, edges_per_item: int, /) -> None: ...
def attend_grad_dst(call: AttendCall, csr: Csr, rule: int, dtype: int, edges_per_item: int, /) -> None: ...
def attend_grad_src(call: AttendCall, csr: Csr, rule: int, dtype: int, edges_per_item: int, /) -> None: ...
def stream_read(address: int, bytes: int, threads: int) -> float: ...
def gather_rows(x: int, row_floats: int, index: int, count: int, prefetch: int, threads: int) -> float: ...
def available_isas() -> list[str]: ...
def sampled_fingerprint(data: int, bytes: int) -> int: ...
def select_isa(name: str) -> bool: ...
def selected_isa() -> str: ...
def vector_bytes() -> int: ...
def fingerprint(data: int, bytes: int, threads: int) -> int: ...
def bind_openmp(path: str) -> bool: ...
def openmp_bound() -> bool: ...
def in_forked_child() -> bool: ...
def pool_empty(shape: Sequence[int], dtype: int) -> Tensor: ...
def pool_clear() -> None: ...
def pool_set_limit(bytes: int) -> None: ...
def pool_info() -> dict[str, int]: ...
def keep_freed_memory(keep: bool) -> bool: ...
def trim_memory() -> None: ...
