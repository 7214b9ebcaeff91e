"""The assignments, run by the tools they are made for: nbgrader and otter-grader, where they are installed.

.ci/run does so in an environment of their own. `otter grade` does in a container what `otter run` does here.
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


def need(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def tool(folder, name, *arguments):
    """One of their commands, which lie beside this Python."""
    beside = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
    command = [str(beside / name), *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]


def answered(notebook):
    """A student's answers in the places for them."""
    for cell in (cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        source = "".join(cell["source"])
        for name in (name for name in ANSWERS if name in f"{source}{cell['metadata']}"):
            cell["source"] = source if "check(" in source else ANSWERS[name]
    return notebook


@pytest.mark.slow
@need("nbgrader")
def test_nbgrader_generates_and_grades(tmp_path):
    source = tmp_path / "source" / "hw1"
    source.mkdir(parents=True)
    out = source / "hw1.ipynb"
    assert cli.main(["assignment", "--exercises", IDS, "--out", str(out), "--points", "2"]) == 0
    tool(tmp_path, "nbgrader", "generate_assignment", "hw1", "--create")
    released = json.loads((tmp_path / "release/hw1/hw1.ipynb").read_text())
    assert "YOUR CODE HERE" in json.dumps(released) and "SOLUTION" not in json.dumps(released)
    handed_in = tmp_path / "submitted" / "ada" / "hw1"
    handed_in.mkdir(parents=True)
    (handed_in / "hw1.ipynb").write_text(json.dumps(answered(released)))
    tool(tmp_path, "nbgrader", "autograde", "hw1", "--create")
    graded = json.loads((tmp_path / "autograded/ada/hw1/hw1.ipynb").read_text())
    errors = [o for c in graded["cells"] for o in c.get("outputs", []) if o["output_type"] == "error"]
    assert [error["ename"] for error in errors] == ["AssertionError"]
    assert errors[0]["evalue"].startswith("Not yet")
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        notebook = book.find_submission_notebook("hw1", "hw1", "ada")
        assert (notebook.score, notebook.max_score) == (4, 6)


@pytest.mark.slow
@need("otter")
def test_otter_assigns_and_grades(tmp_path):
    """As the page says, word by word: assign, hand in, `otter run` with the autograder's zip file."""
    out = tmp_path / "hw1.ipynb"
    command = ["assignment", "--exercises", IDS, "--out", str(out), "--points", "2", "--format", "otter"]
    assert cli.main(command) == 0
    (tmp_path / WHEEL).write_bytes(b"")  # carried along; what is installed here is used
    tool(tmp_path, "otter", "assign", "hw1.ipynb", "dist")
    released = json.loads((tmp_path / "dist" / "student" / "hw1.ipynb").read_text())
    assert "SOLUTION" not in json.dumps(released["cells"])
    (autograder,) = (tmp_path / "dist" / "autograder").glob("*.zip")
    with ZipFile(autograder) as archive:
        assert f"./files/{WHEEL}" in archive.read("environment.yml").decode()
        assert f"files/{WHEEL}" in archive.namelist()
    (tmp_path / "ada.ipynb").write_text(json.dumps(answered(released)))
    tool(tmp_path, "otter", "run", "-a", str(autograder), "-o", str(tmp_path), "ada.ipynb")
    results = {test["name"]: test for test in json.loads((tmp_path / "results.json").read_text())["tests"]}
    scores = {name: (test["score"], test["max_score"]) for name, test in results.items() if name in ANSWERS}
    assert scores == {"order_bag": (2, 2), "pe_table": (0, 2), "softmax_forward": (2, 2)}
    assert "AssertionError: Not yet" in results["pe_table"]["output"]
