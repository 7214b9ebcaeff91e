"""Forty honest submissions, ten from each of four learning management systems (LMS), and four class lists.

The file names and the columns of the class list depend on the LMS. Two students are called Anna Smith, and
one student submits nothing. The files have features that must cost no points: IPython magics, zip files,
unusual suffixes and encodings, and checkpoint copies by Jupyter. One exercise asks for a letter, the other
for a softmax function.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import NamedTuple

NAMES = (
    "Anna Smith", "Anna Smith", "Zoë Núñez", "Ben Ode", "Li Wei", "Maria da Silva", "Olaf O'Neill",
    "Jean-Luc Petit", "Ada Lovelace", "Ben Odell",
)  # fmt: skip
MISSING_STUDENT = "Emmy Noether"
FIRST_NUMBER = 1001
LATE_NUMBER = 1004
SOFTMAX = "def softmax_forward(s):\n    e = np.exp(s - s.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)\n"
CODE = f"import numpy as np\norder_bag = 'b'\n{SOFTMAX}"
MAGICS = "x = np.ones((3, 3))\n%timeit -n 10 softmax_forward(x)\n%time y = softmax_forward(x)\n!pip install numpy\n?np.exp"
ZIP_MEMBERS = {"env/hw1.py": CODE, ".ipynb_checkpoints/hw1.py": "1 / 0", "__MACOSX/._hw1.py": "\0"}


class System(NamedTuple):
    """The form in which an LMS exports files and class lists."""

    path: str  # the path of a submission
    header: str  # the first line of the class list
    line: str  # each further line of the class list
    encoding: str


SYSTEMS = {
    "canvas": System(
        "{plain}_{late}{i}_77{i}_{file}",
        'Student,ID,SIS User ID,SIS Login ID,Section,HW 1 (4711)\n    Points Possible,,,,,2\n"Student, Test",9999,,,A,',
        '"{last}, {first}",{i},S{i},{plain}{i}@x.org,A,',
        "utf-8-sig",
    ),
    "moodle": System(
        "{name}_{i}_assignsubmission_file_/{file}",
        "Identifier;Full name;ID number;Email address;Status;Grade;Maximum Grade",
        "Participant {i};{name};M{i};{i}@x.org;;;2",
        "utf-8-sig",
    ),
    "blackboard": System(
        "HW 1_u{i}_attempt_2026-03-0{day}-10-00-00_{file}",
        "Last Name\tFirst Name\tUsername\tStudent ID\tLast Access\tAvailability",
        "{last}\t{first}\tu{i}\tB{i}\t\tYes",
        "utf-16",
    ),
    "gradescope": System(
        "submission_55{i}/{file}",
        "Name,SID,Email,Total Score,Max Points,Submission ID,Lateness (H:M:S)",
        "{name},G{i},{i}@x.org,,2,55{i},{clock}",
        "utf-8-sig",
    ),
}


def make_notebook(*cells):
    """Return the bytes of a notebook with these code cells."""
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}).encode()


def make_zip(members):
    """Return the bytes of a zip file; `members` has the content of each name."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def make_files():
    """Return (file name, bytes) of the submission of each student in NAMES. All answers are correct."""
    cells = ("import numpy as np", f"{MAGICS.splitlines()[1]}\norder_bag = 'b'", SOFTMAX + MAGICS)
    return [
        ("hw1.py", CODE.encode()),
        ("hw1.ipynb", make_notebook(*cells)),
        ("hw1 (1).py.txt", CODE.encode()),
        ("hw1.ipynb.json", make_notebook("%%time\n%matplotlib inline\nimport numpy as np", CODE)),
        ("answers.zip", make_zip(ZIP_MEMBERS)),
        ("HW1.PY", ("# é\n" + CODE).encode("utf-16")),
        ("hw1.ipynb", make_notebook("def f(x): return x\n%timeit -n 10 f(x)\nf?\nimport numpy as np", CODE)),
        ("hw1.py", f"student = 'somebody else, see 10{len(NAMES)}'\n{CODE}".encode()),
        ("hw1.py", ("# coding: latin-1\n# Zoë\n" + CODE).encode("latin-1")),
        ("hw1.ipynb", make_notebook("!ls \\\n -la\nfiles = !ls\nimport numpy as np", CODE, "%%bash\nexit 1")),
    ]


def describe_student(number, name):
    """Return the data of one student for paths and class lists.

    The student with the number LATE_NUMBER submits late.
    """
    first, _, last = name.rpartition(" ")
    is_late = number == LATE_NUMBER
    return {
        "i": number,
        "name": name,
        "first": first,
        "last": last,
        "plain": f"{last}{first}".lower().replace(" ", "").replace("'", ""),
        "late": "LATE_" if is_late else "",
        "day": 2 if is_late else 1,
        "clock": "23:59:61" if is_late else "00:00:00",
    }


def write_class(system_name, folder):
    """Write a zip file with all submissions, and the class list. Return both paths."""
    system = SYSTEMS[system_name]
    students = [describe_student(i, name) for i, name in enumerate([*NAMES, MISSING_STUDENT], FIRST_NUMBER)]
    files = {}
    for student, (file_name, data) in zip(students, make_files(), strict=False):
        files[system.path.format(file=file_name, **student)] = data
    class_path = Path(folder, f"{system_name}.zip")
    class_path.write_bytes(make_zip(files))
    list_path = Path(folder, f"{system_name}.csv")
    lines = [system.header, *(system.line.format(**student) for student in students)]
    list_path.write_bytes("\n".join(lines).encode(system.encoding))
    return class_path, list_path
