import pytest

import onehop as library
from onehop.cli.app import VERBS
from tests.cli.running import onehop
from tests.processes import run_anew


def test_a_damaged_file_ends_with_a_sentence(tmp_path):
    path = tmp_path / "damaged.npz"
    path.write_bytes(b"PK nothing")
    result = onehop("demo --graph", path)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("verb", ["", "demo", "info", "bench", "bench ops"])
def test_help_is_there(verb):
    result = onehop(verb, "--help")
    assert result.exit_code == 0
    assert "Usage: " in result.stdout


def test_it_runs_as_a_module():
    assert "Usage: onehop " in run_anew("-m", "onehop", "--help").stdout


def test_help_and_version_import_nothing_heavy():
    code = (
        "import sys\n"
        "sys.argv[0] = 'onehop'\n"
        "from typer.testing import CliRunner\n"
        "from onehop.cli.app import app\n"
        "for option in ('--help', '--version'):\n"
        "    assert CliRunner().invoke(app, [option]).exit_code == 0\n"
        "print([name for name in ('torch', 'numpy', 'matplotlib', 'rich') if name in sys.modules])"
    )
    assert run_anew("-c", code).stdout.strip() == "[]"


def test_version():
    assert onehop("--version").stdout == f"onehop {library.__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_of_verbs_says_what_each_verb_says(verb):
    told = " ".join(onehop(verb, "--help").stdout.split())
    assert VERBS[verb].rstrip(".") in told


@pytest.mark.parametrize("group", ["", "bench", "simulate"])
def test_no_line_of_help_is_cut_off(group):
    assert "..." not in onehop(group, "--help").stdout.partition("Commands")[2]


@pytest.mark.parametrize(
    ("option", "verbs"), [("--models", ("demo", "bench models")), ("--json", ("run", "demo", "info", "tune"))]
)
def test_an_option_has_the_same_name_in_each_verb(option, verbs):
    assert [verb for verb in verbs if option not in onehop(verb, "--help").stdout] == []


KINDS = ("bench ops", "bench models", "bench limits", "simulate ndp", "simulate pim", "simulate dram")


@pytest.mark.parametrize("verb", [*VERBS, *KINDS])
def test_options_of_several_verbs_say_the_same(verb):
    shared = {
        "--threads": "Threads to use; torch's number by default.",
        "--width ": "Feature columns.",
        "--scale": "Multiplies a twin's numbers of nodes and edges.",
    }
    told = " ".join(onehop(verb, "--help").stdout.split())
    for option, text in shared.items():
        assert (option in told) == (text in told), option
