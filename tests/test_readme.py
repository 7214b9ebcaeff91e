"""Tests of the README: its example runs, and its names, commands, counts and links are correct."""

import functools
import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import npformer
from npformer.cli import main
from npformer.exercises import list_exercises

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAYOUT = (ROOT / "notebooks" / "guide" / "layout.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "notebooks").rglob("*.md")),
    ROOT / ".github" / "CONTRIBUTING.md",
]


def commands():
    """Return every command in the README: the lines of shell blocks, and `uv …` in the text."""
    shell = re.findall(r"```bash\n(.*?)```", README, flags=re.S)
    lines = [line.split(" #")[0] for block in shell for line in block.splitlines()]
    inline = re.findall(r"`(uv [^`]+)`", re.sub(r"```.*?```", "", README, flags=re.S))
    return [part.strip() for line in [*lines, *inline] for part in line.split("&&")]


def test_readme_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    names = {}
    exec(code, names)
    assert names["y"].shape == (3, 6, 8)
    assert names["grads"].ffn.W_1.shape == names["params"].ffn.W_1.shape
    assert "all 13 passed" in capsys.readouterr().out
    assert len(code.strip().splitlines()) <= 10 and len(README.splitlines()) <= 100


@functools.cache
def anchors(file):
    """Return the anchors that GitHub and the documentation site make from the headings of a page."""
    page = file.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.S), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_links_have_targets(page):
    text = page.read_text(encoding="utf-8")
    syntax_of_site_only = r"^(```|:::)\{|^---$|\{\w+\}`"
    assert not re.search(syntax_of_site_only, text, flags=re.M)
    for path, anchor in re.findall(r"""(?:\]\(|href=")(?!\w+:)([^)#"]*)#?([^)"]*)""", text):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), (path, anchor)


def test_readme_commands_and_extras_exist(capsys):
    found = commands()
    first, second, *_ = (c for c in found if c.startswith("uv run"))
    assert [first, second] == ["uv run npformer lessons", "uv run jupyter lab my_lessons"]
    assert "pip install uv && uv run pytest " in README
    used = {shlex.split(c)[3] for c in found if re.match(r"uv run npformer \w", c)}
    assert {"lessons", "play", "worksheet", "exercises", "grade"} <= used
    for command in sorted(used | {"show", "check"}):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code in (0, None), command
        assert f"npformer {command}" in capsys.readouterr().out
    assert all((ROOT / script).is_file() for script in re.findall(r"python (\S+\.py)", " ".join(found)))
    extras = set(re.findall(r"--extra (\w+)", " ".join(found)))
    assert extras and extras <= PROJECT["project"]["optional-dependencies"].keys()
    assert set(re.findall(r"--group (\w+)", " ".join(found))) <= PROJECT["dependency-groups"].keys()


def test_readme_names_and_counts_are_correct():
    listed = re.findall(r"\(notebooks/(\d\w+\.ipynb)\)", README)
    assert listed == sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert all(hasattr(npformer, name) for name in re.findall(r"npf\.(\w+)", README))
    assert set(re.findall(r'check\("([\w.]+)"', README)) <= {e.id for e in list_exercises()}
    assert f"[{len(list_exercises())} exercises](notebooks/exercises.ipynb)" in README
    kills = (ROOT / "tests" / "data" / "kills.md").read_text(encoding="utf-8")
    caught = re.search(r"planted one by one: (\d+ of \d+) caught", kills)
    judged = re.search(r"hard to judge: (\d+ of \d+) judged", kills)
    sentence = (
        f"`gradcheck` rejected {caught[1]} wrong backward passes, "
        f"and its verdict on {judged[1]} misleading pairs was correct."
    )
    assert sentence in README, f'"Key results" in README.md must contain this sentence: {sentence}'
    confusion = (ROOT / "tests" / "data" / "confusion.md").read_text(encoding="utf-8")
    assert re.search(r"correct answers: 0 rejected\. \d+ wrong answers: 0 passed", confusion)


def test_layout_page_lists_all_modules_and_folders():
    trees = re.findall(r"```text\n(.*?)```", LAYOUT, flags=re.S)
    package, other_folders = (
        {line.split()[0] for line in tree.splitlines() if line.strip()} for tree in trees
    )
    expected = {"npformer/"}
    for path in (ROOT / "npformer").iterdir():
        if path.suffix == ".py":
            expected.add(path.name)
        elif (path / "__init__.py").is_file():
            expected.add(f"{path.name}/")
    assert package == expected
    assert all((ROOT / name).is_dir() for name in other_folders)


def test_readme_hook_makes_links_absolute():
    spec = importlib.util.spec_from_file_location("readme_hook", ROOT / ".ci" / "readme_hook.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    address = PROJECT["project"]["urls"]["Repository"]
    hook.ReadmeHook(str(ROOT), {}).update(metadata := {"urls": {"Repository": address}})
    text = metadata["readme"]["text"]
    assert metadata["readme"] == {"content-type": "text/markdown", "text": text}
    assert not re.search(r"\]\((?!https?:|#)", text)
    assert f"({address}/raw/main/figures/player_moves.webp)" in text
    assert f"({address}/blob/main/notebooks/README.md)" in text
    assert text.count("](http") == README.count("](")
    assert README.count(address) == README.count(f"git clone {address} && cd npformer\n") == 1
    assert (ROOT / "pyproject.toml").read_text("utf-8").count(address) == 1
