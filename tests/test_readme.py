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


def test_every_command_script_and_extra_is_there(capsys):
    said = commands()
    first, second, *_ = (c for c in said if c.startswith("uv run"))
    assert [first, second] == ["uv run npformer lessons", "uv run jupyter lab my_lessons"]
    assert "pip install uv && uv run pytest " in README
    asked = {shlex.split(c)[3] for c in said if re.match(r"uv run npformer \w", c)}
    assert {"lessons", "play", "worksheet", "exercises", "grade"} <= asked
    for command in sorted(asked | {"show", "check"}):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code in (0, None), command
        assert f"npformer {command}" in capsys.readouterr().out
    assert all((ROOT / script).is_file() for script in re.findall(r"python (\S+\.py)", " ".join(said)))
    extras = set(re.findall(r"--extra (\w+)", " ".join(said)))
    assert extras and extras <= PROJECT["project"]["optional-dependencies"].keys()
    assert set(re.findall(r"--group (\w+)", " ".join(said))) <= PROJECT["dependency-groups"].keys()


def test_what_the_text_names_and_counts_exists():
    listed = re.findall(r"\(notebooks/(\d\w+\.ipynb)\)", README)
    assert listed == sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert all(hasattr(npformer, name) for name in re.findall(r"npf\.(\w+)", README))
    assert set(re.findall(r'check\("([\w.]+)"', README)) <= {e.id for e in list_exercises()}
    assert f"[{len(list_exercises())} exercises](notebooks/exercises.ipynb)" in README
    kills = (ROOT / "tests" / "data" / "kills.md").read_text(encoding="utf-8")
    caught, judged = re.findall(r"(\d+ of \d+)", README)
    assert f"planted one by one: {caught} caught" in kills
    assert f"hard to judge: {judged} judged" in kills
    confusion = (ROOT / "tests" / "data" / "confusion.md").read_text(encoding="utf-8")
    assert re.search(r"right codings and variants: 0 refused\. \d+ slips: 0 passed", confusion)


def test_the_tree_has_every_module_and_folder_and_no_other():
    trees = re.findall(r"```text\n(.*?)```", LAYOUT, flags=re.S)
    package, beside = ({line.split()[0] for line in tree.splitlines() if line.strip()} for tree in trees)
    here = (ROOT / "npformer").iterdir()
    there = {p.name + "/" * p.is_dir() for p in here if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert package == {"npformer/", *there}
    assert all((ROOT / name).is_dir() for name in beside)


def test_a_package_index_gets_links_that_lead_somewhere():
    spec = importlib.util.spec_from_file_location("readme_hook", ROOT / ".ci" / "readme_hook.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    address = PROJECT["project"]["urls"]["Repository"]
    hook.ReadmeHook(str(ROOT), {}).update(metadata := {"urls": {"Repository": address}})
    text = metadata["readme"]["text"]
    assert metadata["readme"] == {"content-type": "text/markdown", "text": text}
    assert not re.search(r"\]\((?!https?:|#)", text)
    assert f"({address}/raw/main/figures/player.webp)" in text
    assert f"({address}/blob/main/notebooks/README.md)" in text
    assert text.count("](http") == README.count("](")
    assert address not in README and (ROOT / "pyproject.toml").read_text("utf-8").count(address) == 1
