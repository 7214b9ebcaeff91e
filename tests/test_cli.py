"""The command, as it is typed: what it prints, what it returns, and what it makes of strange terminals."""

import errno
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path

import pytest
from together import together

from npformer import cli
from npformer.grader.grading_process import Limits
from npformer.lessons.named_example import example_from_name
from npformer.lessons.worked_example import dog_bites_man, worked_example


def test_it_prints_the_trace_its_check_and_the_lessons(capsys, monkeypatch):
    for arguments, decimals in ([], None), (["--decimals=3"], 3):
        assert cli.main(["trace", *arguments]) == 0
        out, err = capsys.readouterr()
        trace = str(worked_example(decimals=decimals))
        assert err == "" and out.startswith(f"{trace}\n") and max(map(len, out.splitlines())) <= 100
        assert re.search("gradient check: all 13 passed.*npformer lessons", out.removeprefix(trace), re.S)
        assert out.endswith("; begin with 01_positional_encoding.ipynb.\n")

    def off(dy, cache, right=cli.encoder_block_backward):
        dx, grads = right(dy, cache)
        W_2 = grads.ffn.W_2.copy()
        W_2[0, 1] += 1
        return dx, grads._replace(ffn=grads.ffn._replace(W_2=W_2))

    monkeypatch.setattr(cli, "encoder_block_backward", off)  # which is not called equal
    cli.main(["trace"])
    out = capsys.readouterr().out
    assert "the numbers above by 1.0e+00 at most" in out
    assert "1 of 13 fail" in out and "params.ffn.W_2" in out


# --- worksheets and the player --------------------------------------------------------------------


def test_a_worksheet_is_drawn_as_asked_and_a_terminal_is_told_meanwhile(monkeypatch, capsys):
    monkeypatch.setattr(cli, "save_worksheet", lambda name, path, **choices: f"{path} for {name}: {choices}")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["worksheet", "--seed", "Ada", "--out", "a.pdf"]) == 0
    assert cli.main(["worksheet", "--seed", "Zoë", "--out", "b.pdf", "--key", "--minutes", "15"]) == 0
    out, err = capsys.readouterr()
    plain = "written: a.pdf for Ada: {'key': False, 'paper': 'a4', 'minutes': None}\n"
    assert out == f"{plain}written: b.pdf for Zoë: {{'key': True, 'paper': 'a4', 'minutes': 15}}\n"
    assert err.startswith("the worksheet of Ada is drawn ...\n")


PLAYED = (  # what is typed, and whose numbers with how many decimals the page has, opened where
    ("", None, None, "embedding"),
    ("--decimals 1 --at ffn.z,8", None, 1, "ffn.z,8"),
    ("--name Ada", "Ada", 3, "embedding"),
    ("--name Ada --decimals 8", "Ada", 8, "embedding"),
    ("--variant pre-norm --variant gelu --update adam", None, None, "embedding"),
)


def test_the_player_is_written_with_the_numbers_that_were_asked_for(tmp_path, monkeypatch, capsys):
    file = tmp_path / "play.html"
    for typed, name, decimals, at in PLAYED:
        assert cli.main(["play", "--out", str(file), *typed.split()]) == 0
        assert capsys.readouterr().out == f"written: {file}\n"
        data = json.loads(file.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])
        example = example_from_name(name) if name else dog_bites_man()
        assert (data["decimals"], data["at"]) == (decimals, at)
        assert data["steps"][0]["given"] == example.embedding.E.ravel().tolist()
        other = "pre-norm" in typed
        assert (data["norm"], data["update"]) == (("pre", "adam") if other else ("post", "sgd"))
    file.unlink()
    monkeypatch.setattr(sys, "stdout", None)  # closed: the work is done all the same
    assert cli.main(["play", "--out", str(file)]) == 0 and file.is_file()


# --- what cannot be -------------------------------------------------------------------------------

FILE, THERE = "{}/02_position_geometry.ipynb", "{}/there"
SAID = [
    ("worksheet --seed _ --out {}/a.pdf", "the name is empty; expected at least one letter"),
    ("worksheet --seed Ada --out {}/a.png", "'a.png' should end in one of .pdf, .html"),
    ("worksheet --seed Ada --out {}/b/a.pdf", "there is no folder '{}/b'"),
    ("play --out {}/a.txt", "'a.txt' should end in .html"),
    ("play --out {}", "'{}' is a folder; expected a file"),
    (f"play --out {os.devnull}", f"{os.devnull!r} is a device; expected a file"),
    ("play --out {}/a.html --at ffn.q", "at is 'ffn.q'; the trace has no step 'ffn.q'"),
    ("play --out {}/a.html --name _", "the name is empty; expected at least one letter"),
    ("lesson", "there is no such command; did you mean lessons?"),
    ("qwerty", "there is no such command; --help lists those that there are"),
    ("slides 77 --out {}", "there is no lesson '77'; expected one of "),
    ("slides ex --out {}", "there is no lesson 'ex'; expected one of "),
    (f"lessons {FILE}/a", f"'{FILE}' is a file; expected a folder"),
    (f"slides --out {FILE}", f"'{FILE}' is a file; expected a folder"),
    (f"grade . --csv {{}}/b.csv --feedback {FILE}", f"'{FILE}' is a file; expected a folder"),
    (f"lessons --force {THERE}", f"'{THERE}/02_position_geometry.ipynb' is a folder; expected a file\n"),
    (f"slides --out {THERE}", f"'{THERE}/02_position_geometry.html' is a folder; expected a file\n"),
]


def test_what_cannot_be_is_said_in_one_line_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("npformer.handouts.slides.save_slides", lambda *_: pytest.fail("work was done"))
    (tmp_path / "02_position_geometry.ipynb").write_text("")
    for kind in ("ipynb", "html"):
        (tmp_path / "there" / f"02_position_geometry.{kind}").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))

    def refused(typed, message):
        given = [" " if word == "_" else word.replace("{}", str(tmp_path)) for word in typed.split()]
        assert cli.main(given) == 2, typed
        said = capsys.readouterr().err
        wanted = f"npformer {given[0]}: {message.replace('{}', str(tmp_path))}"
        assert said.startswith(wanted) and said.count("\n") == 1 and sorted(tmp_path.rglob("*")) == before

    for typed, message in SAID:
        refused(typed, message)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        halted = "import of matplotlib halted; None in sys.modules; to get it: pip"
        refused("worksheet --seed Ada --out {}/a.pdf", halted)
    with monkeypatch.context() as patch:  # places that are to be read only
        patch.setattr(os, "access", lambda path, mode: path.is_file())
        for typed, place in (("lessons", "{}/a"), ("play --out", "{}/a.html"), ("grade . --csv", "b.csv")):
            refused(f"{typed} {place}", f"'{place}' cannot be written; choose another place\n")


USAGE = ["worksheet", "worksheet --seed Ada", "worksheet --out a.pdf", "worksheet --paper a5"]
USAGE += [f"trace --decimals {wrong}" for wrong in ("0", "9", "-3", "three")]
HELP = ["--help", *(f"{name} --help" for name in ("trace", "lessons", "worksheet", "play", "grade", "exam"))]


def test_an_unfinished_command_is_refused_and_help_is_given(capsys):
    for typed in [*USAGE, *HELP, "--version"]:
        with pytest.raises(SystemExit) as stop:
            cli.main(typed.split())
        said = capsys.readouterr()
        assert stop.value.code == (2 if typed in USAGE else 0)
        if typed != "--version":
            usage = f"usage: npformer {typed.partition('--')[0]}".rstrip()
            assert (said.err if typed in USAGE else said.out).startswith(usage)
    assert said.out == f"npformer {metadata.version('npformer')}\n"
    parser, _ = cli._make_parser()
    usual = parser.parse_args(["check", "a.py"])
    assert (usual.seconds, usual.megabytes, usual.level, usual.wall) == Limits()[:4]
    assert parser.parse_args(["assignment", "--exercises=a", "--out=b"]).points == 1


# --- the lessons, and what to type next -------------------------------------------------------------


def test_lessons_are_written_once_and_the_next_command_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV", "uv")
    first = Path("my_lessons", "01_positional_encoding.ipynb")
    assert cli.main(["lessons"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"written: {first}\n") and first.is_file() and "kept" not in out
    assert out.endswith("\nNow type:\n\n    uv run jupyter lab my_lessons\n") and "npformer[" not in out
    first.write_text("mine", encoding="utf-8")
    assert cli.main(["lessons"]) == 0
    out = capsys.readouterr().out
    assert f"kept as it was: {first}\n" in out and "written" not in out and "--force" in out
    assert first.read_text(encoding="utf-8") == "mine"
    assert cli.main(["lessons", "--force"]) == 0
    assert "kept" not in capsys.readouterr().out and first.read_text(encoding="utf-8") != "mine"


def test_the_next_command_is_one_that_is_found_here(tmp_path, monkeypatch, capsys):
    """Without uv, a Python whose folder is not on the path is named in full; its tools are its modules."""
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    python, tool = tmp_path / "a b" / "python", tmp_path / "a b" / "npformer"
    monkeypatch.setattr(sys, "executable", str(python))
    (tmp_path / "python").touch(0o755)  # another one
    for there, path, typed in (
        ((python, tool), "", f'"{python}" -m npformer'),
        ((python, tool), str(tmp_path), f'"{python}" -m npformer'),
        ((python, tool), str(python.parent), "npformer"),
        ((python,), str(python.parent), "python -m npformer"),
    ):
        shutil.rmtree(python.parent, ignore_errors=True)
        python.parent.mkdir()
        for file in there:
            file.touch(0o755)
        monkeypatch.setenv("PATH", path)
        assert cli.main([]) == 0 and f"\n    {typed} lessons " in capsys.readouterr().out
    assert cli.main(["lessons", str(tmp_path / "my own")]) == 0
    out = capsys.readouterr().out
    assert 'pip install "npformer[notebook]"' in out
    assert out.endswith(f'    python -m jupyter lab "{tmp_path / "my own"}"\n')


def test_without_a_command_it_prints_one_screen(monkeypatch, capsys):
    monkeypatch.setenv("UV", "uv")
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"npformer {metadata.version('npformer')}: ") and out.count("\n") < 24
    commands = re.findall(r"^    uv run npformer (\S+)", out, re.MULTILINE)
    assert commands == ["lessons", "one-page", "play", "trace", "exercises"]


def test_python_m_npformer_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["npformer", "worksheet", "--seed", "", "--out", "a.pdf"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("npformer", run_name="__main__")
    assert stop.value.code == 2 and "the name is empty" in capsys.readouterr().err


# --- strange terminals ----------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="head is a command of POSIX")
def test_a_reader_that_leaves_early_sees_no_traceback():
    command = f'"{sys.executable}" -m npformer | head -n 1'
    result = subprocess.run(command, shell=True, capture_output=True, timeout=120)
    assert result.stderr == b""
    assert result.stdout.decode().count("\n") == 1


ENDS = (  # what printing raises, the exit code, and what is said
    (BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, ""),
    (OSError(errno.EINVAL, "on Windows"), 1, ""),
    (OSError(errno.ENOSPC, "No space left on device"), 2, "npformer: No space left on device\n"),
    (KeyboardInterrupt(), 130, "npformer: interrupted\n"),
)


@pytest.mark.parametrize(("error", "code", "said"), ENDS)
def test_a_command_that_cannot_go_on_ends_quietly(error, code, said, monkeypatch, tmp_path, capsys):
    with (tmp_path / "out").open("w") as file:

        class Closed(io.StringIO):
            encoding = "utf-8"
            fileno = file.fileno

            def write(self, text):
                raise error

        monkeypatch.setattr(sys, "stdout", Closed())
        assert cli.main([]) == code and capsys.readouterr().err == said
        os.write(file.fileno(), b"what is still in the buffer goes nowhere")
    assert (code == 1) == ((tmp_path / "out").read_bytes() == b"")


TERMINALS = [
    ("ascii", "1/2 ? ?", "Q K^T / sqrt d_k"),
    ("latin-1", "1/2 ? ë", "Q K^T / sqrt d_k"),
    ("utf-8", "½ 李 ë", "Q Kᵀ / √d_k"),
    (None, "½ 李 ë", "Q Kᵀ / √d_k"),
]


@together(("encoding", "other", "scores"), TERMINALS)
def test_a_terminal_gets_at_once_the_letters_that_it_has(encoding, other, scores):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding) if encoding else io.StringIO()
    with redirect_stdout(stream):
        cli._print("½ 李 ë")
        assert cli.main(["trace"]) == 0
    text = stream.buffer.getvalue().decode(encoding) if encoding else stream.getvalue()
    assert text.startswith(f"{other}") and scores in text
    assert text.removeprefix(other).count("?") == 1  # "Are these gradients right?": each has an ASCII form


def test_what_a_browser_cannot_do_is_said_in_one_line_and_the_rest_it_does(monkeypatch, capsys):
    monkeypatch.setattr("npformer.cli.IN_BROWSER", True)
    for command in ("grade submissions --csv marks.csv", "fetch stories"):
        assert cli.main(command.split()) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"npformer {command.split()[0]}: a browser cannot start ")
        assert said.endswith("pip install npformer\n") and said.count("\n") == 1
    for words in (["show", "pe.table"], ["exercises"]):
        assert cli.main(words) == 0 and "pe.table" in capsys.readouterr().out
