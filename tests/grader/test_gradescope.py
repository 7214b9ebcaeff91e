"""Tests of `npformer gradescope`: the zip file, the wheel in it, and the scripts.

.ci/gradescope.py runs the whole autograder, with `setup.sh`.
"""

import io
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from class_files import write_text

from npformer import cli
from npformer.grader import gradescope

ASSIGNMENT = "[points]\norder.bag = 2\nlayer_norm.backward = {dx = 2, dgamma = 1, dbeta = 1}\n"
# The fields and values in Gradescope's "Autograder specifications".
FIELDS = {"score", "execution_time", "output", "output_format", "visibility", "stdout_visibility", "tests"}
TEST_FIELDS = {"score", "max_score", "status", "name", "number", "output", "output_format", "visibility"}
FORMATS = {"text", "html", "simple_format", "md", "ansi"}
VISIBILITIES = {"hidden", "after_due_date", "after_published", "visible"}


def check_documented_fields(results):
    """Check that Gradescope accepts the results: only documented fields, each with a documented value."""
    assert set(results) <= FIELDS and results["score"] >= 0
    for test in results.get("tests", []):
        assert set(test) <= TEST_FIELDS and 0 <= test["score"] <= test["max_score"]
        assert test["status"] in ("passed", "failed") and test["output"]
        assert test["output_format"] in FORMATS and test["visibility"] in VISIBILITIES


@pytest.fixture
def autograder_root(tmp_path):
    """A folder like /autograder, with the unpacked zip file. The environment has a link to this npformer."""
    write_text(tmp_path / "hw1.toml", ASSIGNMENT)
    out = tmp_path / "autograder.zip"
    assert cli.main(["gradescope", str(tmp_path / "hw1.toml"), f"--out={out}"]) == 0
    (tmp_path / "submission").mkdir()
    (tmp_path / "env" / "bin").mkdir(parents=True)
    with ZipFile(out) as archive:
        archive.extractall(tmp_path / "source")
    return tmp_path


def set_program(root, text):
    """Replace the program npformer of the autograder's environment by a shell script."""
    program = write_text(root / "env" / "bin" / "npformer", f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def run_autograder(root):
    """Run the script as Gradescope does, and return the results."""
    environment = os.environ | {"AUTOGRADER_ROOT": str(root)}
    command = ["bash", shutil.copy(root / "source" / "run_autograder", root)]
    assert subprocess.run(command, cwd=root, env=environment, capture_output=True).returncode == 0
    results = json.loads((root / "results" / "results.json").read_text(encoding="utf-8"))
    check_documented_fields(results)
    return results


def test_gradescope_writes_scripts_assignment_and_wheel(autograder_root):
    with ZipFile(autograder_root / "autograder.zip") as archive:
        names = [
            "setup.sh",
            "run_autograder",
            "hw1.toml",
            f"npformer-{metadata.version('npformer')}-py3-none-any.whl",
        ]
        assert archive.namelist() == names
        modes = {member.filename: member.external_attr >> 16 & 0o777 for member in archive.infolist()}
        assert [modes[name] for name in names] == [0o755, 0o755, 0o644, 0o644]
        assert archive.read("hw1.toml").decode() == ASSIGNMENT
        for name in names[:2]:
            subprocess.run(["bash", "-n"], input=archive.read(name), check=True)


PARTLY = """import numpy as np
order_bag = 'b'
def layer_norm_backward(dy, x, gamma, beta, eps):
    return dy, dy, dy.sum((0, 1))
"""


def test_run_autograder_grades_a_submission(autograder_root):
    write_text(autograder_root / "submission" / "my homework.py", PARTLY)
    set_program(autograder_root, f'exec "{sys.executable}" -m npformer "$@"')
    results = run_autograder(autograder_root)
    assert results["score"] == 3
    assert [(test["name"], test["score"], test["max_score"]) for test in results["tests"]] == [
        ("order.bag", 2, 2),
        ("layer_norm.backward", 1, 4),
    ]
    assert results["tests"][1]["output"].endswith(
        "Correct outputs: dbeta (1 point). Other outputs: dx (2 points), dgamma (1 point)."
    )


CRASHES = {  # what the program npformer does, and a part of the reason that the student reads
    'echo "MemoryError: \\"no\\\\space\\" é" >&2; exit 3': "exit code 3 and gave no points. Please tell your teacher. MemoryError: nospace",
    "kill -9 $$": "exit code 137",
    "exit 0": "exit code 0",
}


@pytest.mark.parametrize(("program", "reason"), CRASHES.items())
def test_run_autograder_always_writes_results(autograder_root, program, reason):
    (autograder_root / "results").mkdir()
    write_text(autograder_root / "results" / "results.json", '{"score": 99}')  # of an earlier submission
    set_program(autograder_root, program)
    results = run_autograder(autograder_root)
    assert results["score"] == 0 and reason in results["output"]


def test_setup_stops_at_the_first_error(autograder_root):
    tools = autograder_root / "tools"
    tools.mkdir()
    for name, code in (("apt-get", "exit 0"), ("python3", "exit 7")):
        write_text(tools / name, f"#!/bin/sh\n{code}\n").chmod(0o755)
    environment = os.environ | {
        "AUTOGRADER_ROOT": str(autograder_root),
        "PATH": f"{tools}:{os.environ['PATH']}",
    }
    command = ["bash", autograder_root / "source" / "setup.sh"]
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 7


def test_make_wheel_can_be_installed_offline(tmp_path):
    """An installer accepts the wheel without the network, and writes the command `npformer`."""
    name, data = gradescope.make_wheel()
    (tmp_path / name).write_bytes(data)
    if shutil.which("uv"):
        command = ["uv", "pip", "install", "--offline"]
    else:
        command = [sys.executable, "-m", "pip", "install", "--no-index"]
    target = tmp_path / "target"
    command += ["--no-deps", "--target", str(target), str(tmp_path / name)]
    subprocess.run(command, check=True, capture_output=True)
    assert (target / "bin" / "npformer").exists() or os.name == "nt"
    environment = os.environ | {"PYTHONPATH": str(target)}
    code = "import npformer.cli; print(npformer.cli.__file__); npformer.cli.main(['show', 'pe.table'])"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith(str(target)) and "Answer with a function pe_table" in result.stdout


def test_make_wheel_has_the_metadata_of_the_package():
    name, data = gradescope.make_wheel()
    info = f"npformer-{metadata.version('npformer')}.dist-info"
    with ZipFile(io.BytesIO(data)) as wheel:
        assert wheel.testzip() is None
        assert "npformer.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
        assert "Requires-Dist: numpy" in wheel.read(f"{info}/METADATA").decode()
        assert "MIT" in wheel.read(f"{info}/licenses/LICENSE").decode()
        assert not any("__pycache__" in member for member in wheel.namelist())
        listed = [line.split(",")[0] for line in wheel.read(f"{info}/RECORD").decode().splitlines()]
        assert listed == wheel.namelist() and name.endswith("-py3-none-any.whl")


def test_make_wheel_needs_an_installed_package(monkeypatch):
    def find_nothing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(gradescope.metadata, "distribution", find_nothing)
    with pytest.raises(ValueError, match="npformer is not installed"):
        gradescope.make_wheel()


REJECTED = (  # the assignment file, its text, the zip file, and a part of the message
    ("hw1.toml", "[points]\npe.tabel = 1", "a.zip", "there is no exercise 'pe.tabel'"),
    ("hw1.txt", ASSIGNMENT, "a.zip", "'hw1.txt' should end in .toml"),
    ("hw1.toml", ASSIGNMENT, "a.tar", "'a.tar' should end in .zip"),
)


@pytest.mark.parametrize(("name", "text", "out", "message"), REJECTED)
def test_gradescope_rejects_wrong_arguments(name, text, out, message, tmp_path, capsys):
    path = write_text(tmp_path / name, text)
    assert cli.main(["gradescope", str(path), f"--out={tmp_path / out}"]) == 2
    assert message in capsys.readouterr().err and not Path(tmp_path, out).exists()
