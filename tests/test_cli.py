"""Test the command `npformer`: its output, its exit codes, its error messages, and unusual terminals."""

import errno
import io
import json
import os
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path

import pytest

from npformer import cli
from npformer.grader.grading_process import Limits
from npformer.lessons.named_example import example_from_name
from npformer.lessons.worked_example import dog_bites_man, worked_example

# --- trace ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "decimals"), [([], None), (["--decimals=3"], 3)])
def test_trace_prints_the_example_and_its_check(capsys, arguments, decimals):
    assert cli.main(["trace", *arguments]) == 0
    out, err = capsys.readouterr()
    trace = str(worked_example(decimals=decimals))
    assert err == ""
    assert out.startswith(f"{trace}\n")
    assert max(len(line) for line in out.splitlines()) <= 100
    assert re.search("gradient check: all 13 passed.*npformer lessons", out.removeprefix(trace), re.S)
    assert out.endswith("; begin with 01_positional_encoding.ipynb.\n")


def test_trace_reports_a_wrong_gradient(capsys, monkeypatch):
    correct_backward = cli.encoder_block_backward

    def wrong_backward(dy, cache):
        dx, grads = correct_backward(dy, cache)
        W_2 = grads.ffn.W_2.copy()
        W_2[0, 1] += 1
        return dx, grads._replace(ffn=grads.ffn._replace(W_2=W_2))

    monkeypatch.setattr(cli, "encoder_block_backward", wrong_backward)
    cli.main(["trace"])
    out = capsys.readouterr().out
    assert "the numbers above by 1.0e+00 at most" in out
    assert "1 of 13 fail" in out and "params.ffn.W_2" in out


# --- worksheets and the player --------------------------------------------------------------------


@pytest.fixture
def mock_save_worksheet(monkeypatch):
    """Replace `save_worksheet` by a mock that returns its arguments as text."""
    monkeypatch.setattr(cli, "save_worksheet", lambda name, path, **choices: f"{path} for {name}: {choices}")


@pytest.mark.parametrize(("options", "choices"), [
    ([], {"key": False, "paper": "a4", "minutes": None}),
    (["--key", "--minutes", "15"], {"key": True, "paper": "a4", "minutes": 15}),
], ids=["defaults", "key"])  # fmt: skip
def test_worksheet_passes_the_options(mock_save_worksheet, capsys, options, choices):
    assert cli.main(["worksheet", "--seed", "Zoë", "--out", "b.pdf", *options]) == 0
    assert capsys.readouterr().out == f"written: b.pdf for Zoë: {choices}\n"


def test_worksheet_shows_progress_on_a_terminal(mock_save_worksheet, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["worksheet", "--seed", "Ada", "--out", "a.pdf"]) == 0
    assert capsys.readouterr().err.startswith("drawing the worksheet of Ada ...\n")


def read_player_data(file):
    return json.loads(file.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])


@pytest.mark.parametrize(("options", "name", "decimals", "at"), [
    ("", None, None, "embedding"),
    ("--decimals 1 --at ffn.z,8", None, 1, "ffn.z,8"),
    ("--name Ada", "Ada", 3, "embedding"),
    ("--name Ada --decimals 8", "Ada", 8, "embedding"),
    ("--variant pre-norm --variant gelu --update adam", None, None, "embedding"),
])  # fmt: skip
def test_play_writes_the_chosen_example(tmp_path, capsys, options, name, decimals, at):
    file = tmp_path / "play.html"
    assert cli.main(["play", "--out", str(file), *options.split()]) == 0
    assert capsys.readouterr().out == f"written: {file}\n"
    data = read_player_data(file)
    example = example_from_name(name) if name else dog_bites_man()
    assert (data["decimals"], data["at"]) == (decimals, at)
    assert data["steps"][0]["given"] == example.embedding.E.ravel().tolist()
    expected = ("pre", "adam") if "pre-norm" in options else ("post", "sgd")
    assert (data["norm"], data["update"]) == expected


def test_play_works_with_closed_output(tmp_path, monkeypatch):
    file = tmp_path / "play.html"
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["play", "--out", str(file)]) == 0 and file.is_file()


# --- rejected arguments ---------------------------------------------------------------------------

SPACE = "SPACE"  # a test replaces SPACE by " ", and {} by the temporary folder
FILE, FOLDER = "{}/02_position_geometry.ipynb", "{}/there"
REJECTED = [
    (f"worksheet --seed {SPACE} --out {{}}/a.pdf", "the name is empty; expected at least one letter"),
    ("worksheet --seed Ada --out {}/a.png", "'a.png' should end in one of .pdf, .html"),
    ("worksheet --seed Ada --out {}/b/a.pdf", "there is no folder '{}/b'"),
    ("play --out {}/a.txt", "'a.txt' should end in .html"),
    ("play --out {}", "'{}' is a folder; expected a file"),
    (f"play --out {os.devnull}", f"{os.devnull!r} is a device; expected a file"),
    ("play --out {}/a.html --at ffn.q", "at is 'ffn.q'; the trace has no step 'ffn.q'"),
    (f"play --out {{}}/a.html --name {SPACE}", "the name is empty; expected at least one letter"),
    ("lesson", "unknown command; did you mean lessons?"),
    ("qwerty", "unknown command; --help lists all commands"),
    ("slides 77 --out {}", "there is no lesson '77'; expected one of "),
    ("slides ex --out {}", "there is no lesson 'ex'; expected one of "),
    (f"lessons {FILE}/a", f"'{FILE}' is a file; expected a folder"),
    (f"slides --out {FILE}", f"'{FILE}' is a file; expected a folder"),
    (f"grade . --csv {{}}/b.csv --feedback {FILE}", f"'{FILE}' is a file; expected a folder"),
    (f"lessons --force {FOLDER}", f"'{FOLDER}/02_position_geometry.ipynb' is a folder; expected a file\n"),
    (f"slides --out {FOLDER}", f"'{FOLDER}/02_position_geometry.html' is a folder; expected a file\n"),
]


@pytest.fixture
def check_rejected(tmp_path, monkeypatch, capsys):
    """Return a function that checks that a command fails with a one-line message and writes no file.

    The temporary folder has a file where some commands expect a folder, and folders where they expect files.
    """
    monkeypatch.setattr("npformer.handouts.slides.save_slides", lambda *_: pytest.fail("work was done"))
    (tmp_path / "02_position_geometry.ipynb").write_text("")
    for suffix in ("ipynb", "html"):
        (tmp_path / "there" / f"02_position_geometry.{suffix}").mkdir(parents=True)
    files = sorted(tmp_path.rglob("*"))

    def check(command, message):
        words = [word.replace(SPACE, " ").replace("{}", str(tmp_path)) for word in command.split()]
        assert cli.main(words) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"npformer {words[0]}: {message.replace('{}', str(tmp_path))}")
        assert err.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == files

    return check


@pytest.mark.parametrize(("command", "message"), REJECTED, ids=[command for command, _ in REJECTED])
def test_commands_reject_wrong_arguments(check_rejected, command, message):
    check_rejected(command, message)


def test_worksheet_names_the_missing_extra(check_rejected, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "import of matplotlib halted; None in sys.modules; to get it: pip"
    check_rejected("worksheet --seed Ada --out {}/a.pdf", message)


@pytest.mark.parametrize(
    ("command", "target"), [("lessons", "{}/a"), ("play --out", "{}/a.html"), ("grade . --csv", "b.csv")]
)
def test_commands_reject_a_read_only_folder(check_rejected, monkeypatch, command, target):
    monkeypatch.setattr(os, "access", lambda path, mode: path.is_file())
    check_rejected(f"{command} {target}", f"'{target}' cannot be written; choose another place\n")


# --- usage and help -------------------------------------------------------------------------------


def run_and_exit(command, capsys):
    """Run a command that raises SystemExit. Return the exit code, the output and the error output."""
    with pytest.raises(SystemExit) as exit_error:
        cli.main(command.split())
    out, err = capsys.readouterr()
    return exit_error.value.code, out, err


@pytest.mark.parametrize("command", [
    "worksheet", "worksheet --seed Ada", "worksheet --out a.pdf", "worksheet --paper a5",
    "trace --decimals 0", "trace --decimals 9", "trace --decimals -3", "trace --decimals three",
])  # fmt: skip
def test_incomplete_command_prints_the_usage(capsys, command):
    exit_code, _, err = run_and_exit(command, capsys)
    name = command.partition("--")[0].strip()
    assert exit_code == 2 and err.startswith(f"usage: npformer {name}")


@pytest.mark.parametrize("command", ["", "trace", "lessons", "worksheet", "play", "grade", "exam"])
def test_help_prints_the_usage(capsys, command):
    exit_code, out, _ = run_and_exit(f"{command} --help", capsys)
    assert exit_code == 0 and out.startswith(f"usage: npformer {command}".rstrip())


def test_version_option_prints_the_version(capsys):
    exit_code, out, _ = run_and_exit("--version", capsys)
    assert exit_code == 0 and out == f"npformer {metadata.version('npformer')}\n"


def test_options_have_the_documented_defaults():
    parser, _ = cli._make_parser()
    check = parser.parse_args(["check", "a.py"])
    assert (check.seconds, check.megabytes, check.level, check.wall) == Limits()[:4]
    assert parser.parse_args(["assignment", "--exercises=a", "--out=b"]).points == 1


# --- lessons, and the next command ----------------------------------------------------------------


def test_lessons_are_not_overwritten_without_force(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV", "uv")
    first = Path("my_lessons", "01_positional_encoding.ipynb")
    assert cli.main(["lessons"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"written: {first}\n") and first.is_file() and "not changed" not in out
    assert out.endswith("\nNow type:\n\n    uv run jupyter lab my_lessons\n") and "npformer[" not in out

    first.write_text("mine", encoding="utf-8")
    assert cli.main(["lessons"]) == 0
    out = capsys.readouterr().out
    assert f"not changed: {first}\n" in out and "written" not in out and "--force" in out
    assert first.read_text(encoding="utf-8") == "mine"

    assert cli.main(["lessons", "--force"]) == 0
    assert "not changed" not in capsys.readouterr().out
    assert first.read_text(encoding="utf-8") != "mine"


@pytest.fixture
def other_python(tmp_path, monkeypatch):
    """Pretend that the running Python is in the folder "a b". A different Python is in the parent folder."""
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    python = tmp_path / "a b" / "python"
    python.parent.mkdir()
    monkeypatch.setattr(sys, "executable", str(python))
    for file in (python, tmp_path / "python"):
        file.touch(0o755)
    return python


@pytest.mark.parametrize(("has_tool", "path", "expected"), [
    pytest.param(True, [], '"{python}" -m npformer', id="not on PATH"),
    pytest.param(True, ["."], '"{python}" -m npformer', id="different Python on PATH"),
    pytest.param(True, ["a b"], "npformer", id="on PATH"),
    pytest.param(False, ["a b"], "python -m npformer", id="only python on PATH"),
])  # fmt: skip
def test_next_command_can_be_found(other_python, tmp_path, monkeypatch, capsys, has_tool, path, expected):
    """The printed command uses the Python that runs now, even if PATH leads to a different Python."""
    if has_tool:
        (other_python.parent / "npformer").touch(0o755)
    folders = [str((tmp_path / folder).resolve()) for folder in path]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    assert cli.main([]) == 0
    assert f"\n    {expected.format(python=other_python)} lessons " in capsys.readouterr().out


def test_lessons_print_how_to_open_them(other_python, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(other_python.parent))
    folder = tmp_path / "my own"
    assert cli.main(["lessons", str(folder)]) == 0
    out = capsys.readouterr().out
    assert 'pip install "npformer[notebook]"' in out
    assert out.endswith(f'    python -m jupyter lab "{folder}"\n')


def test_overview_fits_on_one_screen(monkeypatch, capsys):
    monkeypatch.setenv("UV", "uv")
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"npformer {metadata.version('npformer')}: ") and out.count("\n") < 24
    commands = re.findall(r"^    uv run npformer (\S+)", out, re.MULTILINE)
    assert commands == ["lessons", "one-page", "play", "trace", "exercises"]


def test_python_m_npformer_runs_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["npformer", "worksheet", "--seed", "", "--out", "a.pdf"])
    # pytest imports the modules of a plugin with a hook that runpy does not support.
    finders = [finder for finder in sys.meta_path if type(finder).__name__ != "AssertionRewritingHook"]
    monkeypatch.setattr(sys, "meta_path", finders)
    with pytest.raises(SystemExit) as exit_error:
        runpy.run_module("npformer", run_name="__main__")
    assert exit_error.value.code == 2 and "the name is empty" in capsys.readouterr().err


# --- unusual terminals ----------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="head is a command of POSIX")
def test_closed_pipe_shows_no_traceback():
    command = f'"{sys.executable}" -m npformer | head -n 1'
    result = subprocess.run(command, shell=True, capture_output=True, timeout=600)
    assert result.stderr == b""
    assert result.stdout.decode().count("\n") == 1


@pytest.mark.parametrize(("error", "exit_code", "message"), [
    pytest.param(BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, "", id="closed pipe"),
    pytest.param(OSError(errno.EINVAL, "on Windows"), 1, "", id="closed pipe on Windows"),
    pytest.param(OSError(errno.ENOSPC, "No space"), 2, "npformer: No space\n", id="full disk"),
    pytest.param(KeyboardInterrupt(), 130, "npformer: interrupted\n", id="Ctrl+C"),
])  # fmt: skip
def test_failed_output_ends_the_command(error, exit_code, message, monkeypatch, tmp_path, capsys):
    with (tmp_path / "out").open("w") as file:

        class FailingOutput(io.StringIO):
            encoding = "utf-8"
            fileno = file.fileno

            def write(self, text):
                raise error

        monkeypatch.setattr(sys, "stdout", FailingOutput())
        assert cli.main([]) == exit_code
        assert capsys.readouterr().err == message
        os.write(file.fileno(), b"buffered text")  # Python writes buffered text like this when it exits
    is_discarded = (tmp_path / "out").read_bytes() == b""
    assert is_discarded == (exit_code == 1)


@pytest.mark.parametrize(("encoding", "printed", "scores"), [
    ("ascii", "1/2 ? ?", "Q K^T / sqrt d_k"),
    ("latin-1", "1/2 ? ë", "Q K^T / sqrt d_k"),
    ("utf-8", "½ 李 ë", "Q Kᵀ / √d_k"),
    (None, "½ 李 ë", "Q Kᵀ / √d_k"),
])  # fmt: skip
def test_output_uses_the_characters_of_the_terminal(encoding, printed, scores):
    output = io.BytesIO()
    stream = io.TextIOWrapper(output, encoding=encoding) if encoding else io.StringIO()
    with redirect_stdout(stream):
        cli._print("½ 李 ë")
        assert cli.main(["trace"]) == 0
    if isinstance(stream, io.StringIO):
        text = stream.getvalue()
    else:
        text = output.getvalue().decode(encoding)
    assert text.startswith(printed) and scores in text
    # Every character of the trace has an ASCII form: the only ? is in "Are these gradients correct?".
    assert text.removeprefix(printed).count("?") == 1


# --- in a browser ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["grade submissions --csv marks.csv", "fetch stories"])
def test_browser_rejects_commands_that_start_processes(monkeypatch, capsys, command):
    monkeypatch.setattr("npformer.cli.IN_BROWSER", True)
    assert cli.main(command.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"npformer {command.split()[0]}: a browser cannot start ")
    assert err.endswith("pip install npformer\n") and err.count("\n") == 1


@pytest.mark.parametrize("command", ["show pe.table", "exercises"])
def test_browser_runs_other_commands(monkeypatch, capsys, command):
    monkeypatch.setattr("npformer.cli.IN_BROWSER", True)
    assert cli.main(command.split()) == 0 and "pe.table" in capsys.readouterr().out
