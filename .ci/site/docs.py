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
import tarfile
from pathlib import Path

from exercise_pages import exercise_list
from one_page_set import write_one_page
from static_lessons import write_lessons

from npformer import play

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MATHJAX = "mathjax@3.2.2"  # of npm; Apache License 2.0
MATHJAX_SHA256 = "1b9c0a1c44df864e915690558e72adb9cc5203360daefd385084ced3b6c64c09"
MATHJAX_FILE = "package/es5/tex-svg.js"  # draws its letters as paths: no font is loaded
FIGURE = re.compile(r"^!\[\]\(\.\./\.\./\.\./figures/(.+?)\)$", re.MULTILINE)


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
    shutil.copytree(HERE / "pages", sources / "pages")
    shutil.copytree(HERE / "static", sources / "_static")
    shutil.copy(HERE / "conf.py", sources)
    for name in ("index.md", "play.md"):
        (sources / "pages" / name).replace(sources / name)
    play().save(sources / "_static" / "player.html")
    write_one_page(sources / "_static")
    (sources / "_static" / "mathjax.js").write_bytes(mathjax(ROOT / "build" / "npm"))
    write_figures(sources)
    write_lessons(ROOT / "notebooks", sources / "lessons", sources / "_static")
    shutil.copytree(HERE / "api", sources / "api", ignore=shutil.ignore_patterns("module.rst"))
    (sources / "pages" / "exercises.md").write_text(exercise_list(), encoding="utf-8")
    for name in ("confusion.md", "kills.md"):
        shutil.copy(ROOT / "tests" / "data" / name, sources / "pages" / name)
    shutil.copy(ROOT / ".github" / "CONTRIBUTING.md", sources / "pages" / "contributing.md")


def mathjax(cache: Path) -> bytes:
    """MathJax in one file, which npm brings once."""
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / (MATHJAX.replace("@", "-") + ".tgz")
    if not archive.is_file():
        npm = shutil.which("npm") or sys.exit(f"docs.py: npm is needed once, for {MATHJAX}")
        subprocess.run([npm, "pack", "--silent", MATHJAX], cwd=cache, check=True, stdout=subprocess.DEVNULL)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != MATHJAX_SHA256:
        sys.exit(f"docs.py: {archive} is not {MATHJAX} as it was released")
    with tarfile.open(archive) as opened:
        member = opened.extractfile(MATHJAX_FILE)
        return member.read() if member else b""


def write_figures(sources: Path) -> None:
    """The gallery: each figure with the description that make.py has of it."""
    sys.path.insert(0, str(ROOT / "figures"))
    from make import alt

    for page in [sources / "index.md", *(sources / "pages").glob("*.md")]:
        text = page.read_text(encoding="utf-8")
        page.write_text(FIGURE.sub(lambda found: described(found[1], alt(found[1])), text), encoding="utf-8")
    (sources / "figures").mkdir()
    for file in [*(ROOT / "figures").glob("*.svg"), *(ROOT / "figures").glob("*.[pw][ne][gb]*")]:
        shutil.copy(file, sources / "figures")


def described(name: str, words: str) -> str:
    return f"```{{image}} /figures/{name}\n:alt: {words}\n```"


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
