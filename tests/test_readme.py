"""The README's example runs as it stands, what it names exists, and what it points at is there."""

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
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def commands():
    """Every command in the README: a line of a block of shell, or what stands between backquotes."""
    shell = re.findall(r"```bash\n(.*?)```", README, flags=re.S)
    lines = [line.split(" #")[0] for block in shell for line in block.splitlines()]
    spoken = re.findall(r"`(uv [^`]+)`", re.sub(r"```.*?```", "", README, flags=re.S))
    return [part.strip() for line in [*lines, *spoken] for part in line.split("&&")]


def test_the_taste_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    names = {}
    exec(code, names)
    assert names["y"].shape == (3, 6, 8)
    assert names["grads"].ffn.W_1.shape == names["params"].ffn.W_1.shape
    assert "all 13 passed" in capsys.readouterr().out
    assert len(code.strip().splitlines()) <= 10 and len(README.splitlines()) <= 100


@functools.cache
def anchors(file):
    """What a forge and the site make of a page's headings."""
    page = file.read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.S), flags=re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_s_links_lead_somewhere_on_a_forge_too(page):
    text = page.read_text(encoding="utf-8")
    of_the_site_alone = r"^(```|:::)\{|^---$|\{\w+\}`"
    assert not re.search(of_the_site_alone, text, flags=re.M)
    for path, place in re.findall(r"""(?:\]\(|href=")(?!\w+:)([^)#"]*)#?([^)"]*)""", text):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        assert not place or place in anchors(target), (path, place)


def test_every_command_of_the_package_is_there(capsys):
    asked = {shlex.split(c)[3] for c in commands() if re.match(r"uv run npformer \w", c)}
    assert {"lessons", "play", "worksheet", "exercises", "grade"} <= asked
    for command in sorted(asked | {"show", "check"}):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code in (0, None), command
        assert f"npformer {command}" in capsys.readouterr().out


def test_every_script_extra_and_group_of_a_command_is_there():
    said = " ".join(commands())
    for script in re.findall(r"python (\S+\.py)", said):
        assert (ROOT / script).is_file(), script
    extras = re.findall(r"--extra (\w+)", said)
    assert extras
    assert set(extras) <= PROJECT["project"]["optional-dependencies"].keys()
    assert set(re.findall(r"--group (\w+)", said)) <= PROJECT["dependency-groups"].keys()


def test_what_the_text_names_exists_and_the_two_commands_come_first():
    first, second, *_ = (c for c in commands() if c.startswith("uv run"))
    assert [first, second] == ["uv run npformer lessons", "uv run jupyter lab my_lessons"]
    assert "pip install uv && uv run pytest " in README
    listed = re.findall(r"\(notebooks/(\d\w+\.ipynb)\)", README)
    assert listed == sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    pictures = re.findall(r"!\[(.*?)\]\(", README)
    assert len(pictures) == 5 and all(len(alt) > 40 for alt in pictures)
    assert all(hasattr(npformer, name) for name in re.findall(r"npf\.(\w+)", README))
    assert set(re.findall(r'check\("([\w.]+)"', README)) <= {e.id for e in list_exercises()}


def test_counts_are_those_of_the_tables_and_of_the_bank():
    assert f"[{len(list_exercises())} exercises](notebooks/exercises.ipynb)" in README
    kills = (ROOT / "tests" / "data" / "kills.md").read_text(encoding="utf-8")
    caught, judged = re.findall(r"(\d+ of \d+)", README)
    assert f"planted one by one: {caught} caught" in kills
    assert f"hard to judge: {judged} judged" in kills
    confusion = (ROOT / "tests" / "data" / "confusion.md").read_text(encoding="utf-8")
    assert re.search(r"right codings and variants: 0 refused\. \d+ slips: 0 passed", confusion)


def test_a_speed_that_misses_its_bound_stands_on_the_page_that_explains_bounds():
    assert "✗" not in README
    page = (ROOT / "notebooks" / "guide" / "how_right_how_fast.md").read_text(encoding="utf-8")
    assert "**at most** is a bound that this project sets itself" in page


# --- where everything is ------------------------------------------------------------------------


def listed_in(tree):
    """The names of a tree: what stands first in its lines."""
    return {line.split()[0] for line in tree.splitlines() if line.strip()}


def test_the_tree_has_every_module_and_folder_and_no_other():
    package, beside = re.findall(r"```text\n(.*?)```", LAYOUT, flags=re.S)
    here = (ROOT / "npformer").iterdir()
    there = {p.name + "/" * p.is_dir() for p in here if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert listed_in(package) == {"npformer/", *there}
    assert all((ROOT / name).is_dir() for name in listed_in(beside))


# --- what a package index shows -----------------------------------------------------------------


def test_a_package_index_gets_links_that_lead_somewhere():
    spec = importlib.util.spec_from_file_location("readme_hook", ROOT / ".ci" / "readme_hook.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    address = PROJECT["project"]["urls"]["Repository"]
    text = hook.absolute(README, address)
    assert LINK.findall(text) == []
    assert f"({address}/raw/main/figures/player.webp)" in text
    assert f"({address}/blob/main/notebooks/README.md)" in text
    assert text.count("](http") == README.count("](")
    metadata = {"urls": {"Repository": address}}
    hook.ReadmeHook(str(ROOT), {}).update(metadata)
    assert metadata["readme"] == {"content-type": "text/markdown", "text": text}
    assert address not in README and (ROOT / "pyproject.toml").read_text("utf-8").count(address) == 1
