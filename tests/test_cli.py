"""The command, as it is typed: what it prints, what it returns, and what it makes of strange terminals."""

import errno
import io
import json
import os
import re
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from npformer import cli
from npformer.teaching.worked_example import dog_bites_man, worked_example
from npformer.teaching.worksheet import example_from_name


def run(*arguments, **environment):
    """The command in a process of its own."""
    environment = {**os.environ, **environment}
    command = [sys.executable, "-m", "npformer", *arguments]
    return subprocess.run(command, capture_output=True, env=environment, timeout=120)


# --- the trace ------------------------------------------------------------------------------------


def test_it_prints_the_trace_its_check_and_the_lessons(capsys):
    for arguments, decimals in (([], None), (["--decimals=3"], 3), (["--decimals", "8"], 8)):
        assert cli.main(["trace", *arguments]) == 0
        out, err = capsys.readouterr()
        trace = str(worked_example(decimals=decimals))
        assert err == "" and out.startswith(f"{trace}\n") and max(map(len, out.splitlines())) <= 100
        assert re.search("gradient check: all 13 passed.*npformer lessons", out.removeprefix(trace), re.S)
        assert out.endswith("; begin with 01_positional_encoding.ipynb.\n")


def test_the_distance_from_the_package_is_measured(capsys, monkeypatch):
    """A backward pass that is 1 off somewhere is not called equal."""

    def off(dy, cache):
        dx, grads = cli_backward(dy, cache)
        W_2 = grads.ffn.W_2.copy()
        W_2[0, 1] += 1
        return dx, grads._replace(ffn=grads.ffn._replace(W_2=W_2))

    cli_backward = cli.encoder_block_backward
    monkeypatch.setattr(cli, "encoder_block_backward", off)
    cli.main(["trace"])
    out = capsys.readouterr().out
    assert "the numbers above by 1.0e+00 at most" in out
    assert "1 of 13 fail" in out and "params.ffn.W_2" in out


# --- the worksheet --------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Instead of drawing, remember what was to be drawn."""
    calls = []

    def save(name, path, **choices):
        calls.append((name, path, *choices.values()))
        return [tmp_path / "a-1.svg", tmp_path / "a-2.svg"]

    monkeypatch.setattr(cli, "save_worksheet", save)
    return calls


def test_a_worksheet_is_drawn_as_asked_and_its_files_are_named(asked, tmp_path, capsys):
    assert cli.main(["worksheet", "--seed", "Ada", "--out", "a.svg"]) == 0
    assert cli.main(["worksheet", "--seed", "Zoë", "--out", "b.pdf", "--key", "--minutes", "15"]) == 0
    assert asked == [("Ada", Path("a.svg"), False, "a4", None), ("Zoë", Path("b.pdf"), True, "a4", 15)]
    out = capsys.readouterr().out
    assert out == 2 * f"written: {tmp_path / 'a-1.svg'}, {tmp_path / 'a-2.svg'}\n"


def test_without_matplotlib_it_says_how_to_get_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["worksheet", "--seed", "Ada", "--out", str(tmp_path / "a.pdf")]) == 2
    err = capsys.readouterr().err
    assert "matplotlib" in err and err.endswith("(in a clone: uv sync --extra plots)\n")
    assert not list(tmp_path.iterdir())


# --- the player -----------------------------------------------------------------------------------


def played(path):
    """What `play` wrote: the data of the page."""
    page = path.read_text(encoding="utf-8")
    return json.loads(page.split('id="data">')[1].split("</script>")[0])


@pytest.mark.parametrize(
    ("arguments", "name", "decimals", "at"),
    [
        ([], None, None, "embedding"),
        (["--decimals", "2", "--at", "ffn.z,8"], None, 2, "ffn.z,8"),
        (["--name", "Ada"], "Ada", 3, "embedding"),
        (["--name", "Ada", "--decimals", "4"], "Ada", 4, "embedding"),
        (["--variant", "pre-norm", "--variant", "gelu", "--update", "adam"], None, None, "embedding"),
    ],
)
def test_the_player_is_written_with_the_numbers_that_were_asked_for(
    arguments, name, decimals, at, tmp_path, capsys
):
    file = tmp_path / "play.html"
    assert cli.main(["play", "--out", str(file), *arguments]) == 0
    assert capsys.readouterr().out == f"written: {file}\n"
    data = played(file)
    example = example_from_name(name) if name else dog_bites_man()
    assert (data["decimals"], data["at"]) == (decimals, at)
    assert data["steps"][0]["given"] == example.embedding.E.ravel().tolist()
    other = "pre-norm" in arguments
    assert (data["norm"], data["update"]) == (("pre", "adam") if other else ("post", "sgd"))


SAID = [
    ("worksheet --seed _ --out {}/a.pdf", "the name is empty; expected at least one letter"),
    ("worksheet --seed Ada --out {}/a.png", "'a.png' should end in one of .pdf, .svg, .html"),
    ("worksheet --seed Ada --out {}/b/a.pdf", "there is no folder '{}/b'"),
    ("play --out {}/b/a.html", "there is no folder '{}/b'"),
    ("play --out {}/a.txt", "'a.txt' should end in .html"),
    ("play --out {}", "'{}' is a folder; expected a file"),
    (f"play --out {os.devnull}", f"{os.devnull!r} is a device; expected a file"),
    ("play --out {}/a.html --at ffn.q", "at is 'ffn.q'; the trace has no step 'ffn.q'"),
    ("play --out {}/a.html --name _", "the name is empty; expected at least one letter"),
    ("lesons", "there is no such command; did you mean lessons?"),
    ("qwerty", "there is no such command; --help lists those that there are"),
    ("slides 77 --out {}", "there is no lesson '77'; expected one of "),
]


@pytest.mark.parametrize(("arguments", "message"), SAID)
def test_what_cannot_be_is_said_in_one_line(arguments, message, tmp_path, capsys):
    given = [" " if word == "_" else word.format(tmp_path) for word in arguments.split()]
    assert cli.main(given) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"npformer {given[0]}: {message.format(tmp_path)}") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


USAGE = ["worksheet", "worksheet --seed Ada", "worksheet --out a.pdf", "worksheet --paper a5"]
USAGE += [f"trace --decimals {wrong}" for wrong in ("0", "9", "-3", "three")]


@pytest.mark.parametrize("arguments", USAGE)
def test_an_unfinished_command_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        cli.main(arguments.split())
    assert error.value.code == 2
    assert capsys.readouterr().err.startswith(f"usage: npformer {arguments.split()[0]}")


# --- where it is written ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["lessons"], ["slides", "--out"], ["grade", ".", "--csv", "b.csv", "--feedback"]]
)
def test_a_folder_that_cannot_be_made_is_said_before_any_work(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("")
    assert cli.main([*arguments, "a.py/deck/01"]) == 2
    assert (
        capsys.readouterr().err
        == f"npformer {arguments[0]}: {str(tmp_path / 'a.py')!r} is a file; expected a folder\n"
    )
    monkeypatch.setattr(os, "access", lambda path, mode: path.is_file())  # a folder that is to be read only
    assert cli.main([*arguments, "deck"]) == 2
    name = "b.csv" if "--csv" in arguments else "deck"
    assert f"{name!r} cannot be written; choose another place\n" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "a.py"]


# --- the lessons ----------------------------------------------------------------------------------


def test_lessons_are_written_and_the_next_command_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV", "uv")
    assert cli.main(["lessons"]) == 0
    out = capsys.readouterr().out
    first = Path("my_lessons", "01_positional_encoding.ipynb")
    assert out.startswith(f"written: {first}\n") and first.is_file() and "kept" not in out
    assert out.endswith("\nNow type:\n\n    uv run jupyter lab my_lessons\n")
    first.write_text("mine", encoding="utf-8")
    assert cli.main(["lessons"]) == 0
    out = capsys.readouterr().out
    assert f"kept as it was: {first}\n" in out and "written" not in out and "--force" in out
    assert first.read_text(encoding="utf-8") == "mine"
    assert cli.main(["lessons", "--force"]) == 0
    assert "kept" not in capsys.readouterr().out and first.read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize("installed", [True, False])
def test_without_uv_and_jupyterlab_it_says_how_to_go_on(installed, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setattr(cli, "find_spec", lambda name: installed or None)
    folder = tmp_path / "my own"
    assert cli.main(["lessons", str(folder)]) == 0
    out = capsys.readouterr().out
    assert ('pip install "npformer[notebook]"' in out) is not installed
    assert out.endswith(f'    jupyter lab "{folder}"\n')


def test_the_next_command_is_one_that_is_found_here(tmp_path, monkeypatch, capsys):
    """A Python whose folder is not on the path is named in full; its tools are its modules."""
    monkeypatch.delenv("UV", raising=False)
    python, tool = tmp_path / "a b" / "python", tmp_path / "a b" / "npformer"
    for file in (python, tool):
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
        file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    for path, typed in {
        "": f'"{python}" -m npformer lessons',
        str(python.parent): "npformer lessons",
    }.items():
        monkeypatch.setenv("PATH", path)
        assert cli.main([]) == 0
        assert f"\n    {typed} " in capsys.readouterr().out
    tool.unlink()
    cli.main([])
    assert "\n    python -m npformer lessons " in capsys.readouterr().out


def test_a_lesson_is_not_written_over_a_folder(tmp_path, capsys):
    folder = tmp_path / "02_position_geometry.ipynb"
    folder.mkdir()
    assert cli.main(["lessons", str(tmp_path), "--force"]) == 2
    assert f"{str(folder)!r} is a folder; expected a file, or another folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [folder]


# --- the command line -----------------------------------------------------------------------------


def test_help_and_version(capsys):
    for command in ("", "trace", "lessons", "worksheet", "play"):
        with pytest.raises(SystemExit) as stop:
            cli.main([*command.split(), "--help"])
        out = capsys.readouterr().out
        assert stop.value.code == 0 and out.startswith(f"usage: npformer {command}".strip())
        assert command or ("trace " in out and "worksheet" in out and out.isascii())
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"npformer {metadata.version('npformer')}\n"


def test_without_a_command_it_prints_one_screen(monkeypatch, capsys):
    monkeypatch.setenv("UV", "uv")
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"npformer {metadata.version('npformer')}: ") and out.count("\n") < 24
    commands = re.findall(r"^    uv run npformer (\S+)", out, re.MULTILINE)
    assert commands == ["lessons", "one-page", "play", "trace", "exercises"]


def test_a_terminal_is_told_what_takes_its_time(asked, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["worksheet", "--seed", "Ada", "--out", "a.svg"]) == 0
    assert capsys.readouterr().err == "the worksheet of Ada is drawn ...\n"


def test_slides_ask_for_the_place_of_each_page_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("npformer.teaching.slides.save_slides", lambda *_: pytest.fail("work was done"))
    page = tmp_path / "02_position_geometry.html"
    page.mkdir()
    assert cli.main(["slides", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"npformer slides: {str(page)!r} is a folder; expected a file\n"


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


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.EINVAL, "on Windows")])
def test_a_closed_pipe_ends_the_command_quietly(error, monkeypatch, tmp_path):
    with (tmp_path / "out").open("w") as file:

        class Closed(io.StringIO):
            encoding = "utf-8"
            fileno = file.fileno

            def write(self, text):
                raise error

        monkeypatch.setattr(sys, "stdout", Closed())
        assert cli.main([]) == 1
        os.write(file.fileno(), b"what is still in the buffer goes nowhere")
    assert (tmp_path / "out").read_bytes() == b""


def test_where_output_is_closed_the_work_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["play", "--out", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").is_file()


def test_ctrl_c_ends_a_command_in_one_line(monkeypatch, capsys):
    def interrupted(example=None, decimals=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "worked_example", interrupted)
    assert cli.main(["trace"]) == 130
    assert capsys.readouterr() == ("", "npformer trace: interrupted\n")


def test_a_full_disk_is_said(monkeypatch, capsys):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert cli.main([]) == 2
    assert "No space left on device" in capsys.readouterr().err


def test_a_terminal_gets_the_letters_that_it_has():
    for encoding, said in (("ascii", "scores = Q K^T / sqrt d_k"), ("utf-8", "scores = Q Kᵀ / √d_k")):
        result = run("trace", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        assert (result.returncode, result.stderr) == (0, b"")
        text = result.stdout.decode(encoding)
        assert said in text and text.count("?") == 1  # "Are these gradients right?": each has an ASCII form


@pytest.mark.parametrize(
    ("encoding", "printed"), [("ascii", "1/2 sum ? ?"), ("latin-1", "1/2 sum ? ë"), ("utf-8", "½ Σ 李 ë")]
)
def test_letters_are_printed_at_once_as_the_stream_can(encoding, printed, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    cli._say("½ Σ 李 ë")
    assert stream.buffer.getvalue().decode(encoding) == f"{printed}{os.linesep}"
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # which names no encoding
    cli._say("½ Σ 李 ë")
    assert sys.stdout.getvalue() == "½ Σ 李 ë\n"


def test_what_a_browser_cannot_do_is_said_in_one_line_and_the_rest_it_does(monkeypatch, capsys):
    monkeypatch.setattr("npformer.cli.IN_BROWSER", True)
    for command in ("grade submissions --csv marks.csv", "fetch stories"):
        assert cli.main(command.split()) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"npformer {command.split()[0]}: a browser cannot start ")
        assert said.endswith("pip install npformer\n") and said.count("\n") == 1
    for words in (["show", "pe.table"], ["exercises"]):
        assert cli.main(words) == 0 and "pe.table" in capsys.readouterr().out
