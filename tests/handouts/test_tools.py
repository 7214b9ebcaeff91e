"""Run assignments with nbgrader and otter-grader, if these tools are installed.

.ci/run installs both tools in a separate environment. `otter run` grades like `otter grade`, but needs no
container.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from npformer import cli
from npformer.handouts.assignments import WHEEL

ANSWERS = {
    "order_bag": "order_bag = 'b'\n",
    "pe_table": "def pe_table(n, d_model):\n    return np.zeros((n, d_model))\n",
    "softmax_forward": "def softmax_forward(s):\n    e = np.exp(s - s.max(-1, keepdims=True))\n"
    "    return e / e.sum(-1, keepdims=True)\n",
}
IDS = "pe.table,order.bag,softmax.forward"


def skip_without(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def run_tool(folder, name, *arguments):
    """Run a command of nbgrader or otter, which is installed next to this Python."""
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    command = [str(scripts / name), *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr[-2000:]


def fill_in_answers(notebook):
    """Write a student's answers into the cells that ask for answers."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        is_test = "check(" in source
        if cell["cell_type"] != "code" or is_test:
            continue
        for name, answer in ANSWERS.items():
            if name in f"{source}{cell['metadata']}":
                cell["source"] = answer
    return notebook


@pytest.mark.slow
@skip_without("nbgrader")
def test_nbgrader_generates_and_grades(tmp_path):
    source = tmp_path / "source" / "hw1"
    source.mkdir(parents=True)
    out = source / "hw1.ipynb"
    assert cli.main(["assignment", "--exercises", IDS, "--out", str(out), "--points", "2"]) == 0
    run_tool(tmp_path, "nbgrader", "generate_assignment", "hw1", "--create")
    released = json.loads((tmp_path / "release/hw1/hw1.ipynb").read_text())
    assert "YOUR CODE HERE" in json.dumps(released) and "SOLUTION" not in json.dumps(released)
    submission = tmp_path / "submitted" / "ada" / "hw1"
    submission.mkdir(parents=True)
    (submission / "hw1.ipynb").write_text(json.dumps(fill_in_answers(released)))
    run_tool(tmp_path, "nbgrader", "autograde", "hw1", "--create")
    graded = json.loads((tmp_path / "autograded/ada/hw1/hw1.ipynb").read_text())
    errors = [o for c in graded["cells"] for o in c.get("outputs", []) if o["output_type"] == "error"]
    assert [error["ename"] for error in errors] == ["AssertionError"]
    assert errors[0]["evalue"].startswith("Not yet")
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        notebook = book.find_submission_notebook("hw1", "hw1", "ada")
        assert (notebook.score, notebook.max_score) == (4, 6)


@pytest.mark.slow
@skip_without("otter")
def test_otter_assigns_and_grades(tmp_path):
    """Follow the steps of the guide: assign, submit, and `otter run` with the zip file of the autograder."""
    out = tmp_path / "hw1.ipynb"
    command = ["assignment", "--exercises", IDS, "--out", str(out), "--points", "2", "--format", "otter"]
    assert cli.main(command) == 0
    (tmp_path / WHEEL).write_bytes(b"")  # otter only copies this file, so it may be empty
    run_tool(tmp_path, "otter", "assign", "hw1.ipynb", "dist")
    released = json.loads((tmp_path / "dist" / "student" / "hw1.ipynb").read_text())
    assert "SOLUTION" not in json.dumps(released["cells"])
    (autograder,) = (tmp_path / "dist" / "autograder").glob("*.zip")
    with ZipFile(autograder) as archive:
        assert f"./files/{WHEEL}" in archive.read("environment.yml").decode()
        assert f"files/{WHEEL}" in archive.namelist()
    (tmp_path / "ada.ipynb").write_text(json.dumps(fill_in_answers(released)))
    run_tool(tmp_path, "otter", "run", "-a", str(autograder), "-o", str(tmp_path), "ada.ipynb")
    results = {test["name"]: test for test in json.loads((tmp_path / "results.json").read_text())["tests"]}
    scores = {name: (test["score"], test["max_score"]) for name, test in results.items() if name in ANSWERS}
    assert scores == {"order_bag": (2, 2), "pe_table": (0, 2), "softmax_forward": (2, 2)}
    assert "AssertionError: Not yet" in results["pe_table"]["output"]
