"""Build the site: the documentation, and the browser edition inside it under lite/.

uv run --group site python .ci/site/build.py build/site [--pyodide FOLDER] [--cdn] [--only docs|lite]

docs.py writes the pages. lite.py writes the JupyterLite in which the lessons run. Neither depends on the
other.
"""

import argparse
from pathlib import Path


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the documentation and the browser edition.")
    parser.add_argument("out", type=Path, help="the folder to write; earlier content is replaced")
    parser.add_argument("--pyodide", type=Path, help="a folder with Pyodide's wheels, instead of a download")
    parser.add_argument(
        "--cdn", action="store_true", help="let the browser download the wheels from Pyodide's server"
    )
    parser.add_argument("--only", choices=("docs", "lite"), help="build one half")
    return parser.parse_args()


def main() -> None:
    wanted = arguments()
    if wanted.only != "lite":
        from docs import build_docs

        build_docs(wanted.out)
    if wanted.only != "docs":
        from lite import build_lite

        build_lite(wanted.out, wanted.pyodide, wanted.cdn)


if __name__ == "__main__":
    main()
