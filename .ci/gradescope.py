"""Write the autograder for Gradescope, and run it on three submissions in folders like Gradescope's.

    uv run python .ci/gradescope.py

On Gradescope, the folders `source`, `submission` and `results` are in /autograder. Here they are in a
temporary folder, which the variable AUTOGRADER_ROOT names. Like `setup.sh`, this needs Linux and the network.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from npformer import cli

ASSIGNMENT = 'title = "Homework 1"\n[points]\norder.bag = 2\npe.table = 3\n'
LETTER = 'import numpy as np\norder_bag = "b"\n'
TABLE = """
def pe_table(n, d_model):
    j = np.arange(d_model)
    angles = np.arange(n)[:, None] / 10000 ** (2 * (j // 2) / d_model)
    return np.where(j % 2 == 0, np.sin(angles), np.cos(angles))
"""
ZEROS = "def pe_table(n, d_model):\n    return np.zeros((n, d_model))\n"
SUBMISSIONS = {  # the text of each submission, and its score
    "right": (LETTER + TABLE, 5),
    "half right": (LETTER + ZEROS, 2),
    "crashing": (LETTER + TABLE + "import os\nos._exit(1)\n", 0),
}


def run_script(root: Path, script: str) -> None:
    """Run a script of the autograder, as Gradescope does: in the folder `root`. Raises CalledProcessError."""
    path = os.environ["PATH"]
    if os.geteuid() != 0:  # Gradescope's image is built by root; here only the installed packages are used
        tools = root / "tools"
        tools.mkdir(exist_ok=True)
        shutil.copy("/bin/true", tools / "apt-get")
        path = f"{tools}{os.pathsep}{path}"
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH", "UV")}
    environment |= {"AUTOGRADER_ROOT": str(root), "PATH": path}
    subprocess.run([root / script], cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)


def grade(root: Path, text: str) -> float:
    """Grade a submission, and return its score."""
    shutil.rmtree(root / "submission", ignore_errors=True)
    (root / "submission").mkdir()
    (root / "submission" / "my homework.py").write_text(text, encoding="utf-8")
    run_script(root, "run_autograder")
    results = json.loads((root / "results" / "results.json").read_text(encoding="utf-8"))
    print(json.dumps(results, indent=1))
    return float(results["score"])


def main() -> None:
    """Write the autograder, build its environment, and compare the scores."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "hw1.toml").write_text(ASSIGNMENT, encoding="utf-8")
        command = ["gradescope", str(root / "hw1.toml"), "--out", str(root / "autograder.zip")]
        assert cli.main(command) == 0
        # Python's zipfile module does not restore the executable bits, so a program unpacks the file.
        subprocess.run(["unzip", "-q", root / "autograder.zip", "-d", root / "source"], check=True)
        shutil.copy(root / "source" / "run_autograder", root)
        run_script(root, "source/setup.sh")
        for kind, (text, expected) in SUBMISSIONS.items():
            score = grade(root, text)
            assert score == expected, f"{kind}: {score}; expected {expected}"
        print(f"Python {sys.version.split()[0]}: the three submissions have the expected scores")


if __name__ == "__main__":
    main()
