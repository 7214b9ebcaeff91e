"""The browser edition: JupyterLite, whose kernel is Pyodide, with npformer and the lessons inside.

Nothing is installed when a lesson opens: npformer and all it needs stand in the site's own lock file, and the
kernel loads that list while JupyterLab draws the page. Nothing is asked of another server, unless the site was
built with --cdn: then the browser fetches Pyodide's wheels from Pyodide's server, and compares their sums.
"""

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
    CORE,
    ROOT,
    SERVER,
    Entry,
    build_npformer,
    canonical,
    get_core,
    get_lock,
    get_plain_wheel,
    get_wheel,
    lock_entry,
    with_needs,
)

LESSON_URL = "lite/notebooks/index.html?path={lesson}.ipynb"  # from the site's root; lesson: 01_positional_encoding

FROM_PYODIDE = ("numpy", "matplotlib", "ipython", "micropip")
# What these ask for and no lesson uses: PDF files, time zones.
UNUSED = ("fonttools", "pytz", "matplotlib-pyodide")
# The kernel installs these unless they are in the lock. Nothing here uses them (4 MB), so they are empty wheels there;
# without jedi, IPython completes names by looking at the objects themselves.
EMPTY = ("ssl", "jedi")
KERNEL = {
    "piplite": ["micropip"],
    "ipykernel": [],
    "pyodide_kernel": ["ipython", "comm", "ipykernel"],
}
PLAIN = {"comm": ["traitlets"], "ipywidgets": ["comm", "ipython", "traitlets"], "tqdm": []}
NPFORMER = ["numpy", "matplotlib", "tqdm"]


def build_lite(out: Path, pyodide: Path | None, cdn: bool) -> None:
    """Write the browser edition into out/lite. The wheels come from the folder `pyodide`, or from Pyodide's server."""
    source = CACHE / "sources"  # jupyterlite ignores its settings if this name begins as the output folder's does
    shutil.rmtree(source, ignore_errors=True)
    write_pyodide(source / "static" / "pyodide", pyodide, cdn)
    write_lessons(source / "files")
    write_settings(source)
    target = (out / "lite").resolve()
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "jupyterlite_core", "build", "--output-dir", str(target)]
    said = subprocess.run(command, cwd=source, capture_output=True, text=True)
    if said.returncode:
        sys.exit(said.stdout + said.stderr)


def write_pyodide(folder: Path, wheels: Path | None, cdn: bool) -> None:
    """Pyodide's core, the wheels, and the lock file that names them."""
    folder.mkdir(parents=True)
    for name in CORE:
        shutil.copy(get_core() / name, folder / name)
    lock = get_lock()
    lock["packages"] = {**pyodide_entries(lock, folder, wheels, cdn), **plain_entries(folder)}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))


def pyodide_entries(lock: dict[str, Any], folder: Path, wheels: Path | None, cdn: bool) -> dict[str, Entry]:
    """The lines of Pyodide's own lock file for what is used here. Copies the wheels, or names their server."""
    entries = with_needs(lock["packages"], FROM_PYODIDE, without=UNUSED)
    for entry in entries.values():
        if cdn:
            entry["file_name"] = SERVER + entry["file_name"]
        else:
            shutil.copy(get_wheel(entry, wheels), folder)
    return entries


def plain_entries(folder: Path) -> dict[str, Entry]:
    """Wheels in plain Python that Pyodide does not carry: the kernel's, the widgets', npformer's. Copies them."""
    kernel = {name: next(kernel_wheels().glob(f"{name}-*.whl")) for name in KERNEL}
    plain = {name: get_plain_wheel(name) for name in PLAIN}
    empty = {name: empty_wheel(name, CACHE / "empty") for name in EMPTY}
    own = {"npformer": build_npformer(CACHE / "npformer")}
    depends = {**KERNEL, **PLAIN, "npformer": NPFORMER}
    entries = {}
    for name, wheel in {**kernel, **plain, **empty, **own}.items():
        shutil.copy(wheel, folder)
        imports = [] if name in EMPTY else [name]
        entries[canonical(name)] = lock_entry(wheel, imports, depends.get(name, []))
    return entries


def kernel_wheels() -> Path:
    """Where jupyterlite-pyodide-kernel keeps the wheels that its kernel consists of."""
    return Path(sys.prefix, "share/jupyter/labextensions/@jupyterlite/pyodide-kernel-extension/static/pypi")


def empty_wheel(name: str, into: Path) -> Path:
    """A wheel with a name and nothing else."""
    into.mkdir(parents=True, exist_ok=True)
    wheel = into / f"{name}-0.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, text in {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.0\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: npformer\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }.items():
            archive.writestr(zipfile.ZipInfo(f"{name}-0.0.0.dist-info/{file}"), text)
    return wheel


def write_lessons(folder: Path) -> None:
    """The lessons as a student gets them: without outputs."""
    folder.mkdir(parents=True)
    for lesson in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = json.loads(lesson.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell.update(outputs=[], execution_count=None)
        (folder / lesson.name).write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")


def write_settings(source: Path) -> None:
    """What JupyterLite is told: while it builds, when it starts, and how its windows behave."""
    build = {
        "contents": ["files"],
        "apps": ["lab", "notebooks", "tree"],
        "no_sourcemaps": True,
        "no_unused_shared_packages": True,
    }
    packages = [*KERNEL, *EMPTY, *PLAIN, "micropip", "ipython", "npformer"]
    kernel = {"disablePyPIFallback": True, "loadPyodideOptions": {"packages": packages}}
    start = {
        "appName": "npformer in the browser",
        "exposeAppInBrowser": True,  # the site's tests speak to it
        "litePluginSettings": {KERNEL_PLUGIN: kernel},
    }
    windows = {
        "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # else half the cells are not in the page
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},
    }
    for file, content in {
        "jupyter_lite_config.json": {"LiteBuildConfig": build},
        "jupyter-lite.json": {"jupyter-lite-schema-version": 0, "jupyter-config-data": start},
        "overrides.json": windows,
    }.items():
        (source / file).write_text(json.dumps(content, indent=1))
