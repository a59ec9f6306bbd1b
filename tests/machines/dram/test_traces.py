import numpy as np
import pytest

from onehop.errors import ArgumentError, FileFormatError
from onehop.machines.dram import Memory, Requests, preset, read_trace, write_trace
from onehop.machines.dram.trace import FORMATS

MEMORY = Memory(preset("DDR5_4800AN"), ranks=2, layout="mop4")


@pytest.fixture
def wanted():
    rng = np.random.default_rng(0)
    return Requests(rng.integers(0, MEMORY.address_layout.bursts, 300), rng.random(300) < 0.5)


@pytest.mark.parametrize("form", FORMATS)
def test_requests_survive_a_file_and_come_to_the_same(tmp_path, wanted, form):
    path = tmp_path / "requests.trace"
    write_trace(path, wanted, MEMORY, form)
    back = read_trace(path, MEMORY)
    np.testing.assert_array_equal(back.bursts, wanted.bursts)
    np.testing.assert_array_equal(back.writes, wanted.writes)
    assert MEMORY.serve(back) == MEMORY.serve(wanted)


@pytest.mark.parametrize(
    ("form", "line"), [("load_store", "ST 0x40040"), ("read_write", "W 0,1,1,2,3,8")], ids=FORMATS
)
def test_a_line_looks_as_ramulator_reads_it(tmp_path, form, line):
    path = tmp_path / "one.trace"
    burst = (
        0x1001
        if form == "load_store"
        else MEMORY.address_layout.unmap(np.array([[1], [1], [2], [3], [8]]))[0]
    )
    write_trace(path, Requests(np.array([burst]), np.array([1])), MEMORY, form)
    assert path.read_text() == line + "\n"


def test_addresses_may_be_decimal_and_lines_empty(tmp_path):
    path = tmp_path / "mixed.trace"
    path.write_text("# recorded\n\nLD 100\nST 0x80\n")
    back = read_trace(path, MEMORY)
    assert (back.bursts.tolist(), back.writes.tolist()) == ([1, 2], [0, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one request"),
        ("LD\n", "line 1: expected numbers"),
        ("LD 5\nR 0,0,0,0,0,0\n", "line 2: expected a request .* all of one format"),
        ("LOAD 5\n", "line 1: expected a request"),
        ("R 0,0,0,0,0\n", "line 1: expected channel"),
        ("R 0,0,8,0,0,0\n", "bank_group: expected 0 to 7"),
        ("R 0,0,x,0,0,0\n", "line 1: expected numbers"),
        ("LD 0x10000000000\n", "bursts from 0 to"),
        ("LD -64\n", "bursts from 0 to"),
        ("LD 0xffffffffffffffffffffffff\n", "line 1: .* is outside the memory"),
        ("R 0,0,0,0,0,0\nR 1,0,0,0,0,0\n", "line 2: expected channel 0"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.trace"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=f"bad.trace.*{message}"):
        read_trace(path, MEMORY)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "binary.trace"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match=r"binary\.trace: not text"):
        read_trace(path, MEMORY)


def test_an_unknown_format_is_refused(tmp_path, wanted):
    with pytest.raises(ArgumentError, match="form: expected one of load_store, read_write"):
        write_trace(tmp_path / "x", wanted, MEMORY, "binary")
