"""Build the documentation: copy its sources to one folder, and run Sphinx on them.

    uv run --group site python .ci/site/build.py build/site --only docs

No page loads anything from outside the site, so the pages work from a folder as well as from a server. Each
lesson is shown with the outputs that its notebook file contains. This script executes no lesson; a test
compares the stored outputs with a fresh run.
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
MATHJAX = "mathjax@3.2.2"  # an npm package under the Apache License 2.0
MATHJAX_SHA256 = "d4295dc33744836935c1399feece5159577b34c5c8ffb9f1c6324cd82e03a882"
MATHJAX_FILE = "es5/tex-svg.js"  # this variant draws letters as SVG paths and needs no font files
# Where each repository file (pattern) is on the site. Links between these files are rewritten to match.
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
PLAYER = re.compile(r"!\[.*?\]\(\S*player\.webp\)")  # on the site, the real player replaces this picture
FRAME = """```{raw} html
<iframe class="player tall" title="The player: “dog bites man” through one encoder block and back" src="../_static/player.html"></iframe>
<p><a href="../_static/player.html">The player alone, on the whole screen</a>: one file that works offline, to keep or to hand out.</p>
```"""  # noqa: E501


def build_docs(out: Path) -> None:
    """Write the pages into the folder, and delete earlier content except the browser edition in lite/."""
    sources = out.resolve().parent / "docs-sources"
    lay_out(sources)
    clear(out)
    run_sphinx(sources, out)
    (out / ".nojekyll").touch()  # without this file, GitHub Pages would leave out _static


def lay_out(sources: Path) -> None:
    """Copy everything that Sphinx reads into one folder."""
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
        text = LINK.sub(partial(follow_link, file), PLAYER.sub(FRAME, file.read_text(encoding="utf-8")))
        (sources / place_on_site(file)).write_text(text, encoding="utf-8")
    (sources / "pages" / "exercises.md").write_text(exercise_list(), encoding="utf-8")
    play().save(sources / "_static" / "player.html")
    write_one_page(sources / "_static")
    (sources / "_static" / "mathjax.js").write_bytes(mathjax())


def place_on_site(file: Path) -> str:
    """Return where a file of the repository is on the site, or "" if the site does not contain the file."""
    path = file.relative_to(ROOT).as_posix()
    for pattern, template in PLACES.items():
        match = re.fullmatch(pattern, path)
        if match:
            return match.expand(template)
    return ""


def follow_link(page: Path, link: re.Match[str]) -> str:
    """Rewrite a link between two files of the repository so that the link works on the site."""
    target = Path(os.path.normpath(page.parent / link[0]))
    new_target = place_on_site(target) if target.is_file() else ""
    if not new_target:
        return link[0]
    folder = Path(place_on_site(page)).parent
    return os.path.relpath(new_target, folder).replace(os.sep, "/")


def mathjax() -> bytes:
    """Return the MathJax file that the pages need, after a check of the file's checksum."""
    file = (from_npm(MATHJAX) / MATHJAX_FILE).read_bytes()
    if hashlib.sha256(file).hexdigest() != MATHJAX_SHA256:
        sys.exit(f"docs.py: {MATHJAX_FILE} is not that of {MATHJAX} as it was released")
    return file


def clear(out: Path) -> None:
    """Delete the pages of an earlier build."""
    for old in out.glob("*"):
        if old.name == "lite":
            continue
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()


def run_sphinx(sources: Path, out: Path) -> None:
    """Run Sphinx. Warnings and broken references are errors."""
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
