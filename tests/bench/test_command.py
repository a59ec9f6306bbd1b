import json

import pytest
import torch

from onehop.bench import command


def test_threads_are_put_to_use():
    threads = torch.get_num_threads()
    parser = command.parser("A program.", rounds=7, threads=True)
    options = command.read(parser, ["--threads", str(threads + 1)])
    assert torch.get_num_threads() == threads + 1
    assert (options.rounds, options.json) == (7, None)


def test_a_list_of_threads_is_left_to_the_program():
    threads = torch.get_num_threads()
    parser = command.parser("A program.")
    parser.add_argument("--threads", type=command.integers)
    options = command.read(parser, ["--threads", f"{threads + 1},{threads + 2}"])
    assert options.threads == [threads + 1, threads + 2]
    assert torch.get_num_threads() == threads


def test_lists_are_read_also_by_default():
    parser = command.parser("A program.")
    parser.add_argument("--graphs", type=command.names, default="cora, road")
    parser.add_argument("--widths", type=command.integers, default="16,32")
    options = command.read(parser, [])
    assert (options.graphs, options.widths) == (["cora", "road"], [16, 32])


def test_a_wrong_list_ends_with_a_sentence(capsys):
    parser = command.parser("A program.")
    parser.add_argument("--widths", type=command.integers)
    with pytest.raises(SystemExit):
        command.read(parser, ["--widths", "16,x"])
    assert "argument --widths: expected numbers of at least 1" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_ends_with_a_sentence(tmp_path, capsys):
    parser = command.parser("A program.", plot=True)
    assert command.read(parser, ["--plot", str(tmp_path / "new.svg")]).plot == tmp_path / "new.svg"
    with pytest.raises(SystemExit):
        command.read(parser, ["--plot", str(tmp_path / "new.jpg")])
    assert "argument --plot: expected the name of a picture" in capsys.readouterr().err


def test_results_are_written_where_json_says_with_a_stamp(tmp_path):
    path = tmp_path / "new" / "found.json"
    options = command.read(command.parser("A program."), ["--json", str(path)])
    command.write(options, "bench something", {"found": 1})
    document = json.loads(path.read_text())
    assert (document["command"], document["found"]) == ("bench something", 1)
    assert document["stamp"]["threads"] >= 1


def test_without_json_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command.write(command.read(command.parser("A program."), []), "bench something", {"found": 1})
    assert list(tmp_path.iterdir()) == []
