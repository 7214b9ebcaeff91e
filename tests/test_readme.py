"""The README's example runs as it stands, and what it points at is there."""

import re
from pathlib import Path

import npformer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_taste_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    names = {}
    exec(code, names)
    assert names["y"].shape == (3, 6, 8)
    assert names["grads"].ffn.W_1.shape == names["params"].ffn.W_1.shape
    assert "all 13 passed" in capsys.readouterr().out
    assert len(code.strip().splitlines()) <= 10


def test_every_file_that_is_pointed_at_is_there():
    for path in re.findall(r"\]\((?!https)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_every_lesson_is_in_the_table():
    listed = set(re.findall(r"\(notebooks/(\d\w+\.ipynb)\)", README))
    lessons = {path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    assert listed == lessons


def test_every_picture_says_what_is_in_it():
    for alt in re.findall(r"!\[(.*?)\]\(", README):
        assert len(alt) > 20


def test_what_the_text_names_exists():
    for name in re.findall(r"npf\.(\w+)", README):
        assert hasattr(npformer, name), name
