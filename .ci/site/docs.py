"""Write the documentation: lay out its sources, and have Sphinx make pages of them.

    uv run --group site python .ci/site/build.py build/site --only docs

Nothing in a page asks for anything outside the site; pages open from a folder as well as from a server. A
lesson shows the outputs that its file has: nothing is executed, and a test holds the files to be true.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from exercise_pages import exercise_list
from npm import from_npm
from one_page_set import write_one_page
from static_lessons import write_lessons

from npformer import play

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MATHJAX = "mathjax@3.2.2"  # of npm; Apache License 2.0
MATHJAX_SHA256 = "d4295dc33744836935c1399feece5159577b34c5c8ffb9f1c6324cd82e03a882"
MATHJAX_FILE = "es5/tex-svg.js"  # draws its letters as paths: no font is loaded
# Where a file of the repository stands on the site. A page is written for the repository; its links follow.
PLACES = {
    r"\.ci/site/index\.md": "index.md",
    r"\.github/CONTRIBUTING\.md": "pages/contributing.md",
    r"notebooks/README\.md": "lessons/plan.md",
    r"notebooks/(\w+\.ipynb)": r"lessons/\1",
    r"(?:notebooks/guide|tests/data)/(\w+\.md)": r"pages/\1",
    r"(figures/[\w.]+)": r"\1",
    r"npformer/__init__\.py": "api/index.rst",
    r"npformer/(\w+)(?:/__init__)?\.py": r"api/npformer.\1.rst",
    r"npformer/handouts/one_page\.py": "_static/one_page.html",
}
WRITTEN = ".ci/site/index.md", ".github/*.md", "notebooks/*.md", "notebooks/guide/*.md", "tests/data/*.md"
LINK = re.compile(r"""(?<=\]\()[^)#:\s]+|(?<=href=")[^"#:]+""")
PLAYER = re.compile(r"!\[.*?\]\(\S*player\.webp\)")  # a page may have the player itself
FRAME = """```{raw} html
<iframe class="player tall" title="The player: “dog bites man” through one encoder block and back" src="../_static/player.html"></iframe>
<p><a href="../_static/player.html">The player alone, on the whole screen</a>: one file that works offline, to keep or to hand out.</p>
```"""  # noqa: E501


def build_docs(out: Path) -> None:
    """Write the pages into the folder; what stood there is replaced, but for the browser edition in lite/."""
    sources = out.resolve().parent / "docs-sources"
    lay_out(sources)
    clear(out)
    run_sphinx(sources, out)
    (out / ".nojekyll").touch()  # GitHub Pages leaves out _static otherwise


def lay_out(sources: Path) -> None:
    """Everything that Sphinx reads, in a folder of its own."""
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(HERE / "static", sources / "_static")
    shutil.copytree(HERE / "api", sources / "api", ignore=shutil.ignore_patterns("module.rst"))
    shutil.copy(HERE / "conf.py", sources)
    shutil.copytree(
        ROOT / "figures", sources / "figures", ignore=shutil.ignore_patterns("*.py", "data", "__pycache__")
    )
    write_lessons(ROOT / "notebooks", sources / "lessons", sources / "_static")
    (sources / "pages").mkdir()
    for file in (file for pattern in WRITTEN for file in ROOT.glob(pattern)):
        text = LINK.sub(partial(followed, file), PLAYER.sub(FRAME, file.read_text(encoding="utf-8")))
        (sources / place(file)).write_text(text, encoding="utf-8")
    (sources / "pages" / "exercises.md").write_text(exercise_list(), encoding="utf-8")
    play().save(sources / "_static" / "player.html")
    write_one_page(sources / "_static")
    (sources / "_static" / "mathjax.js").write_bytes(mathjax())


def place(file: Path) -> str:
    """Where a file of the repository stands on the site; nothing if it is not there."""
    path = file.relative_to(ROOT).as_posix()
    matches = ((re.fullmatch(pattern, path), there) for pattern, there in PLACES.items())
    return next((found.expand(there) for found, there in matches if found), "")


def followed(page: Path, link: re.Match[str]) -> str:
    """A link between two files of the repository as one between their places; any other as it is."""
    target = Path(os.path.normpath(page.parent / link[0]))
    there = target.is_file() and place(target)
    return os.path.relpath(there, Path(place(page)).parent).replace(os.sep, "/") if there else link[0]


def mathjax() -> bytes:
    """MathJax in one file."""
    file = (from_npm(MATHJAX) / MATHJAX_FILE).read_bytes()
    if hashlib.sha256(file).hexdigest() != MATHJAX_SHA256:
        sys.exit(f"docs.py: {MATHJAX_FILE} is not that of {MATHJAX} as it was released")
    return file


def clear(out: Path) -> None:
    """Take away the pages of an earlier build."""
    for old in out.glob("*") if out.is_dir() else ():
        if old.name != "lite":
            shutil.rmtree(old) if old.is_dir() else old.unlink()


def run_sphinx(sources: Path, out: Path) -> None:
    """Warnings are errors, and so is a reference that leads nowhere."""
    options = [
        "--builder",
        "html",
        "--nitpicky",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "--jobs",
        "2",
    ]
    trees = ["--doctree-dir", str(sources.parent / "docs-trees")]
    shutil.rmtree(trees[1], ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", *options, *trees, str(sources), str(out)]
    if subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(HERE)}).returncode:
        sys.exit("docs.py: Sphinx found something wrong")
