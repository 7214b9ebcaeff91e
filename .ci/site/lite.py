"""Build the browser edition: JupyterLite with the kernel Pyodide, npformer and the lessons.

Nothing is installed when a lesson opens: the lock file of the site lists npformer and its dependencies, and
the kernel loads them first. The browser uses no other server, unless the site was built with --cdn. With
--cdn, the browser downloads Pyodide's wheels from Pyodide's server and verifies their checksums.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from jupyterlite_pyodide_kernel.constants import PYODIDE_KERNEL_PLUGIN_ID as KERNEL_PLUGIN
from wheels import (
    CACHE,
    ROOT,
    SERVER,
    Wheels,
    build_npformer,
    fill,
    from_file,
    from_pyodide,
    get_plain_wheel,
    sha256,
)

from npformer.handouts.lesson_copies import make_student_copy

HERE = Path(__file__).resolve().parent
# The address of a lesson, relative to the site's root. {lesson} is a file name such as
# 01_positional_encoding.
LESSON_URL = "lite/notebooks/index.html?path={lesson}.ipynb"

RELEASED = ("numpy", "matplotlib", "ipython", "micropip")
# The packages in RELEASED depend on these three packages, but the lessons do not use the three packages. They
# are for fonts in PDF files, for time zones and for drawing on an HTML canvas.
UNUSED = ("fonttools", "pytz", "matplotlib-pyodide")
# The kernel requires these packages, but the lessons do not use them. Empty wheels replace them and save 4
# MB.
EMPTY = ("ssl", "jedi")
KERNEL = {"piplite": ["micropip"], "ipykernel": [], "pyodide_kernel": ["ipython", "comm", "ipykernel"]}
PLAIN = {"comm": ["traitlets"], "ipywidgets": ["comm", "ipython", "traitlets"], "tqdm": []}
# A lesson needs these imports for its first figure. They run early, while the page is still loading.
FIRST = "import IPython, piplite.piplite, numpy, matplotlib.figure, npformer"
SETTINGS = "npformer_browser"  # the name of the package that `settings_wheel` makes
# An entry of the Help menu. The address works from each of lite/notebooks/, lite/lab/ and lite/tree/.
BACK = {
    "command": "help:open",
    "args": {"url": "../../index.html", "text": "Back to the site", "newBrowserTab": True},
    "rank": 0,
}
SITE_PACKAGES = "/lib/python3.12/site-packages"


def build_lite(out: Path, pyodide: Path | None, cdn: bool) -> None:
    """Write the browser edition into out/lite.

    Take wheels from the folder `pyodide`, or from Pyodide's server.
    """
    # The source folder must not be inside the output folder. Otherwise JupyterLite ignores the settings in
    # it.
    source = CACHE / "sources"
    shutil.rmtree(source, ignore_errors=True)
    write_pyodide(source / "static" / "pyodide", pyodide, cdn)
    write_lessons(source / "files")
    write_settings(source)
    target = (out / "lite").resolve()
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "jupyterlite_core", "build", "--output-dir", str(target)]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stdout + result.stderr)
    start_early(target)


# --- Pyodide: the interpreter and the wheels ------------------------------------------------------


def write_pyodide(folder: Path, given: Path | None, cdn: bool) -> None:
    """Write Pyodide's core, the wheels, and the lock file that lists them."""
    released = from_pyodide(RELEASED, given, without=UNUSED)
    plain = plain_wheels()
    done = prepare_wheels({**released, **plain})
    wheels = with_bytecode(plain, done) | settings_wheel(done)
    wheels |= on_server(released) if cdn else with_bytecode(released, done)
    wheels |= from_file(build_npformer(CACHE / "npformer"), ["numpy", "matplotlib", "tqdm"])
    fill(folder, wheels)


def plain_wheels() -> Wheels:
    """Return the pure Python wheels of the kernel and the widgets, which Pyodide does not include."""
    kernel = Path(sys.prefix, "share/jupyter/labextensions/@jupyterlite/pyodide-kernel-extension/static/pypi")
    wheels: Wheels = {}
    for name, depends in KERNEL.items():
        wheels |= from_file(next(kernel.glob(f"{name}-*.whl")), depends)
    for name, depends in PLAIN.items():
        wheels |= from_file(get_plain_wheel(name), depends)
    for name in EMPTY:
        wheels |= from_file(small_wheel(name, {}))
    return wheels


def prepare_wheels(wheels: Wheels) -> Path:
    """Run prepare.py in Pyodide on these wheels, and return its output folder.

    The folder is reused until a wheel changes.
    """
    checksums = sorted(entry["sha256"] for _, entry in wheels.values())
    key = repr(checksums) + (HERE / "prepare.py").read_text()
    folder = CACHE / f"prepared-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not (folder / "fontlist.json").exists():
        node = shutil.which("node") or sys.exit("prepare.py runs in Pyodide, under node: node is needed")
        shutil.rmtree(folder, ignore_errors=True)
        fill(folder / "wheels", wheels)
        runner = [
            node,
            str(HERE / "pyodide.mjs"),
            str(folder / "wheels"),
            str(HERE / "prepare.py"),
            str(folder),
        ]
        subprocess.run([*runner, "matplotlib"], check=True)
    return folder


def with_bytecode(wheels: Wheels, done: Path) -> Wheels:
    """Return the wheels that prepare.py wrote, which contain bytecode instead of source code."""
    files = {name: done / "prepared" / file.name for name, (file, _) in wheels.items() if file}
    return {name: (files[name], {**wheels[name][1], "sha256": sha256(files[name])}) for name in wheels}


def on_server(wheels: Wheels) -> Wheels:
    """Replace the file of each wheel by its address on Pyodide's server, so that no wheel is copied."""
    return {
        name: (None, {**entry, "file_name": SERVER + entry["file_name"]})
        for name, (_, entry) in wheels.items()
    }


def settings_wheel(done: Path) -> Wheels:
    """Make a wheel that sets matplotlib's list of fonts, and moves the current folder to the end of sys.path.

    If the current folder were first in sys.path, Python would ask the web server for every module first.
    """
    current_folder_last = "import sys\nsys.path.append(sys.path.pop(sys.path.index('')))\n"
    files = {
        "matplotlib/fontlist.json": (done / "fontlist.json").read_text(),
        f"{SETTINGS}/profile_default/ipython_config.py": current_folder_last,
    }
    # The wheel depends on matplotlib, so it is unpacked later and its list of fonts replaces matplotlib's.
    return from_file(small_wheel(SETTINGS, files), ["matplotlib"])


def small_wheel(name: str, files: dict[str, str]) -> Path:
    """Write a wheel that contains these files."""
    wheel = CACHE / "small" / f"{name}-0.0.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    about = f"{name}-0.0.0.dist-info"
    texts = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, text in texts.items():
            # A ZipInfo has a fixed default date, so every build gives the same bytes.
            archive.writestr(zipfile.ZipInfo(file), text)
    return wheel


# --- the content of JupyterLite -------------------------------------------------------------------


def write_lessons(folder: Path) -> None:
    """Write the lessons without outputs."""
    folder.mkdir(parents=True)
    for lesson in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = make_student_copy(json.loads(lesson.read_text(encoding="utf-8")))
        (folder / lesson.name).write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")


def start_early(target: Path) -> None:
    """Let a lesson's page start the kernel's worker at once, while JupyterLab is still being drawn."""
    given = f"const options = {json.dumps(start_options())};\nconst first = {json.dumps(FIRST)};\n"
    (target / "static" / "early_worker.js").write_text(given + (HERE / "early_worker.js").read_text())
    page = target / "notebooks" / "index.html"
    script = f"<script>\n{(HERE / 'early_page.js').read_text()}</script>"
    page.write_text(page.read_text().replace("<head>", f"<head>\n{script}", 1))


def start_options() -> dict[str, Any]:
    """Return the kernel's options for Pyodide: packages, and the folder of IPython's settings."""
    packages = [*KERNEL, *EMPTY, *PLAIN, "micropip", "sqlite3", "ipython", SETTINGS, "npformer"]
    return {"packages": packages, "env": {"IPYTHONDIR": f"{SITE_PACKAGES}/{SETTINGS}"}}


def write_settings(source: Path) -> None:
    """Write JupyterLite's three settings files: for the build, for the start, and for the user interface."""
    build = {
        "contents": ["files"],
        "apps": ["lab", "notebooks", "tree"],
        "no_sourcemaps": True,
        "no_unused_shared_packages": True,
    }
    kernel = {"disablePyPIFallback": True, "loadPyodideOptions": start_options()}
    start = {
        "appName": "npformer in the browser",
        "exposeAppInBrowser": True,  # gives the tests of the site access to JupyterLab
        "litePluginSettings": {KERNEL_PLUGIN: kernel},
    }
    windows = {
        # Without this setting, the page contains only the cells near the visible part of the notebook.
        "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},
        "@jupyterlab/mainmenu-extension:plugin": {"menus": [{"id": "jp-mainmenu-help", "items": [BACK]}]},
    }
    for file, content in {
        "jupyter_lite_config.json": {"LiteBuildConfig": build},
        "jupyter-lite.json": {"jupyter-lite-schema-version": 0, "jupyter-config-data": start},
        "overrides.json": windows,
    }.items():
        (source / file).write_text(json.dumps(content, indent=1))
