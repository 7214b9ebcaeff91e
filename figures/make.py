"""Draw every figure of this folder again.

    uv run python figures/make.py                   all of them
    uv run python figures/make.py clock_hands.svg   some of them
    uv run python figures/make.py --check           draw, compare with the files, write nothing

Line art is SVG, heat maps are PNG. With the versions that `drawn_with.txt` names, the files come out byte for
byte the same; other versions place a letter a little differently.
"""

import argparse
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import PIL
from matplotlib.figure import Figure

from npformer import angular_frequencies, plots, positional_encoding, shift_matrix, wavelengths

FOLDER = Path(__file__).parent
DRAWN_WITH = "drawn_with.txt"


def clock_hands() -> Figure:
    return plots.clock_hands([0, 3, 15], angular_frequencies(8))


def frequency_bands() -> Figure:
    return plots.frequency_bands(angular_frequencies(16))


def worked_table() -> Figure:
    return plots.matrix(
        positional_encoding(3, 4),
        row_labels=["0 dog", "1 bites", "2 man"],
        column_labels=["0 sin", "1 cos", "2 sin", "3 cos"],
        title="n = 3, d_model = 4",
    )


def wavelengths_by_base() -> Figure:
    longest = {"base 10000 (the paper)": wavelengths(64), "base 1000": wavelengths(64, base=1000.0)}
    return plots.wavelength_curves(longest, title="d_model = 64")


def one_step() -> Figure:
    return plots.matrix(
        shift_matrix(1, 6),
        decimals=2,
        x_label="column of PE[p + 1]",
        y_label="column of PE[p]",
        title="k = 1",
    )


def heat_map() -> Figure:
    return plots.heat_map(positional_encoding(100, 64), title="100 positions, d_model = 64")


def position_similarity() -> Figure:
    return plots.position_similarity(positional_encoding(100, 64), title="PE[p] · PE[q], d_model = 64")


FIGURES: dict[str, Callable[[], Figure]] = {
    "clock_hands.svg": clock_hands,
    "frequency_bands.svg": frequency_bands,
    "heat_map.png": heat_map,
    "position_similarity.png": position_similarity,
    "shift_matrix.svg": one_step,
    "wavelengths.svg": wavelengths_by_base,
    "worked_table.svg": worked_table,
}


def drawn(name: str) -> bytes:
    """The bytes of one figure's file."""
    return plots.encoded(FIGURES[name](), Path(name).suffix.removeprefix("."))


def versions() -> str:
    """What the bytes of a file depend on."""
    tools = f"matplotlib {matplotlib.__version__}, Pillow {PIL.__version__}, NumPy {np.__version__}"
    return f"{tools}, {platform.system()} {platform.machine()}\n"


def renew(name: str, file: Path, check: bool) -> tuple[bool, str]:
    """Draw one figure: whether the file was as it should be, and a line that says so."""
    start = time.perf_counter()
    data = drawn(name)
    same = file.is_file() and file.read_bytes() == data
    if not check:
        file.write_bytes(data)
    verdict = "as before" if same else ("differs" if check else "written")
    return same, f"{name:24} {len(data) / 1000:6.0f} kB  {time.perf_counter() - start:4.1f} s  {verdict}"


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    """Write the figures, or with --check say which files differ; 0 when all is well."""
    parser = argparse.ArgumentParser(description="Draw the figures of this folder.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(FIGURES)}")
    parser.add_argument("--check", action="store_true", help="compare with the files and write nothing")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(FIGURES):
        parser.error(f"no figure is called {', '.join(sorted(unknown))}")

    names, all_same, record = options.names or list(FIGURES), True, folder / DRAWN_WITH
    if not options.check and not (record.is_file() and record.read_text(encoding="utf-8") == versions()):
        names = list(FIGURES)  # one record for all: files of two versions must not stand side by side
    for number, name in enumerate(names, 1):
        same, line = renew(name, folder / name, options.check)
        all_same = all_same and same
        print(f"{number:3} of {len(names)}  {line}", flush=True)
    if not options.check:
        record.write_text(versions(), encoding="utf-8")
    elif not all_same:
        print(
            f"here:  {versions()}files: {record.read_text(encoding='utf-8') if record.is_file() else 'none'}"
        )
    return 0 if all_same or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
