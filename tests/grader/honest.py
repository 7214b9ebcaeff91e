"""Forty honest hand-ins as four learning systems give them out, with a register of each.

    uv run python tests/grader/honest.py FOLDER

Each system hands out ten students' work under its own names and exports its own columns. Two are called Anna
Smith, one hands in nothing, and each has a habit that costs nobody a point: magics, zip files, strange
suffixes, encodings, an earlier try. The exercises are a letter and a softmax.
"""

import io
import json
import sys
import zipfile
from pathlib import Path

IDS = ("order.bag", "softmax.forward")
NAMES = (
    "Anna Smith", "Anna Smith", "Zoë Núñez", "Ben Ode", "Li Wei", "Maria da Silva", "Olaf O'Neill",
    "Jean-Luc Petit", "Ada Lovelace", "Ben Odell",
)  # fmt: skip
MISSING = "Emmy Noether"
SOFTMAX = "def softmax_forward(s):\n    e = np.exp(s - s.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)\n"
CODE = f"import numpy as np\norder_bag = 'b'\n{SOFTMAX}"
MAGIC = "x = np.ones((3, 3))\n%timeit -n 10 softmax_forward(x)\n%time y = softmax_forward(x)\n!pip install numpy\n?np.exp"
SYSTEMS = ("canvas", "moodle", "blackboard", "gradescope")


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()


def zipped(**members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return data.getvalue()


def works():
    """(file name, bytes) of each of NAMES: all are right."""
    split = ("import numpy as np", f"{MAGIC.splitlines()[1]}\norder_bag = 'b'", SOFTMAX + MAGIC)
    return [
        ("hw1.py", CODE.encode()),
        ("hw1.ipynb", notebook(*split)),
        ("hw1 (1).py.txt", CODE.encode()),
        ("hw1.ipynb.json", notebook("%%time\n%matplotlib inline\nimport numpy as np", CODE)),
        (
            "answers.zip",
            zipped(**{"env/hw1.py": CODE, ".ipynb_checkpoints/hw1.py": "1 / 0", "__MACOSX/._hw1.py": "\0"}),
        ),
        ("HW1.PY", ("# é\n" + CODE).encode("utf-16")),
        ("hw1.ipynb", notebook("def f(x): return x\n%timeit -n 10 f(x)\nf?\nimport numpy as np", CODE)),
        ("hw1.py", f"student = 'somebody else, see 10{len(NAMES)}'\n{CODE}".encode()),
        ("hw1.py", ("# coding: latin-1\n# Zoë\n" + CODE).encode("latin-1")),
        ("hw1.ipynb", notebook("!ls \\\n -la\nfiles = !ls\nimport numpy as np", CODE, "%%bash\nexit 1")),
    ]


def names_of(system):
    """Where each work lies, and the register, as this system writes them."""
    rows = list(enumerate([*NAMES, MISSING], 1001))
    last = {i: name.split()[-1] for i, name in rows}
    first = {i: name.rpartition(" ")[0] for i, name in rows}
    plain = {i: f"{last[i]}{first[i]}".lower().replace(" ", "").replace("'", "") for i, _ in rows}
    if system == "canvas":
        places = [f"{plain[i]}_{'LATE_' * (i == 1004)}{i}_77{i}_{{}}" for i, _ in rows]
        lines = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "HW 1 (4711)"]]
        lines += [["    Points Possible", "", "", "", "", "2"]]
        lines += [
            [f"{last[i]}, {first[i]}", str(i), f"S{i}", f"{plain[i]}{i}@x.org", "A", ""] for i, _ in rows
        ]
        return places, [*lines, ["Student, Test", "9999", "", "", "A", ""]]
    if system == "moodle":
        places = [f"{name}_{i}_assignsubmission_file_/{{}}" for i, name in rows]
        lines = [
            ["Identifier", "Full name", "ID number", "Email address", "Status", "Grade", "Maximum Grade"]
        ]
        return places, lines + [[f"Participant {i}", n, f"M{i}", f"{i}@x.org", "", "", "2"] for i, n in rows]
    if system == "blackboard":
        places = [f"HW 1_u{i}_attempt_2026-03-0{1 + (i == 1004)}-10-00-00_{{}}" for i, _ in rows]
        lines = [["Last Name", "First Name", "Username", "Student ID", "Last Access", "Availability"]]
        return places, lines + [[last[i], first[i], f"u{i}", f"B{i}", "", "Yes"] for i, _ in rows]
    places = [f"submission_55{i}/{{}}" for i, _ in rows]
    lines = [["Name", "SID", "Email", "Total Score", "Max Points", "Submission ID", "Lateness (H:M:S)"]]
    late = {i: "25:00:00" if i == 1004 else "00:00:00" for i, _ in rows}
    return places, lines + [[n, f"G{i}", f"{i}@x.org", "", "2", f"55{i}", late[i]] for i, n in rows]


def write(system, top):
    """The class and its register; returns both paths."""
    places, lines = names_of(system)
    folder, register = Path(top, system), Path(top, f"{system}.csv")
    files = {place.format(name): data for place, (name, data) in zip(places, works(), strict=False)}
    if system == "canvas":  # as it is downloaded
        folder = folder.with_suffix(".zip")
        folder.write_bytes(zipped(**files))
    else:
        for name, data in files.items():
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_bytes(data)
    mark = {"moodle": ";", "blackboard": "\t"}.get(system, ",")
    text = "\n".join(mark.join(f'"{cell}"' for cell in line) for line in lines)
    register.write_bytes(text.encode("utf-16" if system == "blackboard" else "utf-8-sig"))
    return folder, register


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir()
    for each in SYSTEMS:
        print(*write(each, sys.argv[1]))
