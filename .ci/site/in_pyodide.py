"""Run the tests of the mathematical functions in Pyodide.

uv run --group site python .ci/site/in_pyodide.py [--pyodide FOLDER]

Prints the reason and exits with 0 if node, npm or Pyodide's wheels are not available.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from wheels import CACHE, ROOT, Wheels, build_npformer, fill, from_file, from_pyodide, get_plain_wheel

HERE = Path(__file__).resolve().parent
RELEASED = ("numpy", "packaging", "pygments")
TOOLS = ("pytest", "pluggy", "iniconfig", "pytest-xdist", "execnet", "sortedcontainers", "mpmath")
HYPOTHESIS = "6.151.0"  # pure Python; the wheels of later versions are compiled and do not run in Pyodide


def wheels(given: Path | None) -> Wheels:
    found = from_pyodide(RELEASED, given)
    for name in TOOLS:
        found |= from_file(get_plain_wheel(name))
    found |= from_file(get_plain_wheel("hypothesis", HYPOTHESIS))
    return found | from_file(build_npformer(CACHE / "npformer"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the suite's mathematics in Pyodide, under node.")
    parser.add_argument("--pyodide", type=Path, help="a folder with Pyodide's wheels, instead of a download")
    given = parser.parse_args().pyodide
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        print("the mathematics in Pyodide: skipped, node or npm is not installed")
        return 0
    folder = CACHE / "tests"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        found = wheels(given)
        fill(folder, found)
    except (OSError, subprocess.CalledProcessError) as error:  # for example, there is no network
        print(f"the mathematics in Pyodide: skipped, its files cannot be had: {error}")
        return 0
    start = time.monotonic()
    runner = [node, str(HERE / "pyodide.mjs"), str(folder), str(HERE / "mathematics.py"), str(ROOT)]
    done = subprocess.run([*runner, *found])
    print(f"the mathematics in Pyodide: {time.monotonic() - start:.0f} s")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
