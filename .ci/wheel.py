"""Build the wheel, check it, and use it in a fresh environment outside the clone, as a new user would.

    uv run python .ci/wheel.py

The script needs uv and the network. The environment first has only the wheel and NumPy, then the extra
`plots`, then the extra `slides`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ANSWERS = "import numpy as np\norder_bag = 'b'\ndef softmax_forward(s):\n    return s * np.nan\n"


def run(*command: str | Path, code: int = 0, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command, and return its output. Raises AssertionError if the exit code is not `code`."""
    kept = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH", "UV")}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, "PYTHONUTF8": "1", **environment},
        capture_output=True,
        encoding="utf-8",
    )
    text = result.stdout + result.stderr
    assert result.returncode == code, f"{command}: {result.returncode}\n{text}"
    return text


def build_wheel(folder: Path) -> Path:
    """Build the sdist, and the wheel from the sdist. Check that a package index would accept both."""
    run("uv", "build", "--out-dir", folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    run("uvx", "twine", "check", "--strict", wheel, sdist)
    run("uvx", "check-wheel-contents", wheel)
    run("uvx", "--with", "packaging,trove-classifiers", "validate-pyproject", ROOT / "pyproject.toml")
    return wheel


def environment_with(wheel: Path, folder: Path) -> Path:
    """Create a fresh environment with the wheel, and return the folder of its commands."""
    run("uv", "venv", "--python", sys.executable, folder)
    run("uv", "pip", "install", "--python", folder, wheel)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def check_commands(commands: Path, place: Path) -> None:
    """Run the main commands, such as `npformer trace` and `npformer lessons`, in an empty folder."""

    def npformer(*arguments: str, code: int = 0) -> str:
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"  # the PATH of an activated environment
        return run(commands / "npformer", *arguments, code=code, cwd=place, PATH=path)

    screen, trace = npformer(), npformer("trace")
    assert "one-page" in screen and "uv run" not in screen + trace
    assert "all 13 passed" in trace and "    npformer lessons\n" in trace
    assert "pe.table" in npformer("exercises")
    (place / "mine.py").write_text(ANSWERS, encoding="utf-8")
    assert "Correct: 1 of 2." in npformer("check", "mine.py", code=1)
    assert "-m jupyter lab my_lessons\n" in npformer("lessons")
    lessons = sorted(path.name for path in (place / "my_lessons").glob("*.ipynb"))
    assert lessons == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    for path in (place / "my_lessons").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not any(cell.get("outputs") for cell in cells), path
    npformer("play", "--out", "play.html")
    assert (place / "play.html").stat().st_size > 50_000
    refusal = npformer("worksheet", "--seed", "Ada", "--out", "ada.pdf", code=2)
    assert 'pip install "npformer[plots]"' in refusal, refusal
    python = commands / "python"
    reveal = "from npformer.lessons.predictions import reveal; print(reveal('1.1a'))"
    assert "Answer." in run(python, "-c", reveal, cwd=place)
    where = "import npformer; print(npformer.__file__)"
    assert "site-packages" in run(python, "-c", where, cwd=place), "the wheel's, not the clone's"


def check_plots(wheel: Path, environment: Path, commands: Path, place: Path) -> None:
    """Check that a worksheet can be drawn after the extra `plots` is installed."""
    run("uv", "pip", "install", "--python", environment, f"npformer[plots] @ {wheel.as_uri()}")
    run(commands / "npformer", "worksheet", "--seed", "Ada", "--out", "ada.pdf", cwd=place)
    assert (place / "ada.pdf").stat().st_size > 10_000


def check_slides(wheel: Path, environment: Path, commands: Path, place: Path) -> None:
    """Check that `npformer slides` names its missing extra, and that a deck contains scripts and licences."""
    refusal = run(commands / "npformer", "slides", "01", "--out", "deck", cwd=place, code=2)
    assert 'pip install "npformer[slides]"' in refusal, refusal
    run("uv", "pip", "install", "--python", environment, f"npformer[slides] @ {wheel.as_uri()}")
    run(commands / "npformer", "slides", "01", "--out", "deck", cwd=place)
    deck = (place / "deck" / "01_positional_encoding.html").read_text(encoding="utf-8")
    for part in ("Reveal.initialize(", "RevealNotes=", "Hakim El Hattab", "2018+, MarkedJS", "<math"):
        assert part in deck, part


def main() -> None:
    """Build, check, install and use the wheel."""
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch, "dist"))
        environment, place = Path(scratch, "environment"), Path(scratch, "place")
        place.mkdir()
        commands = environment_with(wheel, environment)
        check_commands(commands, place)
        check_plots(wheel, environment, commands, place)
        check_slides(wheel, environment, commands, place)
        print(f"{wheel.name}: {wheel.stat().st_size // 1024} kB, accepted, installed and used")


if __name__ == "__main__":
    main()
