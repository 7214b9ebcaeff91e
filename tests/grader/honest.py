"""Forty honest hand-ins as four learning systems give them out, with a register of each.

Each system hands out ten students' work under its own names and exports its own columns. Two are called Anna
Smith, one hands in nothing, and each has a habit that costs nobody a point: magics, zip files, strange
suffixes, encodings, an earlier try. The exercises are a letter and a softmax.
"""

import io
import json
import zipfile
from pathlib import Path

NAMES = (
    "Anna Smith", "Anna Smith", "Zoë Núñez", "Ben Ode", "Li Wei", "Maria da Silva", "Olaf O'Neill",
    "Jean-Luc Petit", "Ada Lovelace", "Ben Odell",
)  # fmt: skip
MISSING = "Emmy Noether"
SOFTMAX = "def softmax_forward(s):\n    e = np.exp(s - s.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)\n"
CODE = f"import numpy as np\norder_bag = 'b'\n{SOFTMAX}"
MAGIC = "x = np.ones((3, 3))\n%timeit -n 10 softmax_forward(x)\n%time y = softmax_forward(x)\n!pip install numpy\n?np.exp"
COPIED = {"env/hw1.py": CODE, ".ipynb_checkpoints/hw1.py": "1 / 0", "__MACOSX/._hw1.py": "\0"}
SYSTEMS = {  # the place of a work, the register's columns, a line of it, its encoding
    "canvas": (
        "{plain}_{late}{i}_77{i}_{file}",
        'Student,ID,SIS User ID,SIS Login ID,Section,HW 1 (4711)\n    Points Possible,,,,,2\n"Student, Test",9999,,,A,',
        '"{last}, {first}",{i},S{i},{plain}{i}@x.org,A,',
        "utf-8-sig",
    ),
    "moodle": (
        "{name}_{i}_assignsubmission_file_/{file}",
        "Identifier;Full name;ID number;Email address;Status;Grade;Maximum Grade",
        "Participant {i};{name};M{i};{i}@x.org;;;2",
        "utf-8-sig",
    ),
    "blackboard": (
        "HW 1_u{i}_attempt_2026-03-0{day}-10-00-00_{file}",
        "Last Name\tFirst Name\tUsername\tStudent ID\tLast Access\tAvailability",
        "{last}\t{first}\tu{i}\tB{i}\t\tYes",
        "utf-16",
    ),
    "gradescope": (
        "submission_55{i}/{file}",
        "Name,SID,Email,Total Score,Max Points,Submission ID,Lateness (H:M:S)",
        "{name},G{i},{i}@x.org,,2,55{i},{clock}",
        "utf-8-sig",
    ),
}


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
        ("answers.zip", zipped(**COPIED)),
        ("HW1.PY", ("# é\n" + CODE).encode("utf-16")),
        ("hw1.ipynb", notebook("def f(x): return x\n%timeit -n 10 f(x)\nf?\nimport numpy as np", CODE)),
        ("hw1.py", f"student = 'somebody else, see 10{len(NAMES)}'\n{CODE}".encode()),
        ("hw1.py", ("# coding: latin-1\n# Zoë\n" + CODE).encode("latin-1")),
        ("hw1.ipynb", notebook("!ls \\\n -la\nfiles = !ls\nimport numpy as np", CODE, "%%bash\nexit 1")),
    ]


def person(i, name):
    """What the systems say of one student; number 1004 is late."""
    first, _, last = name.rpartition(" ")
    plain = f"{last}{first}".lower().replace(" ", "").replace("'", "")
    late, day, clock = ("LATE_", 2, "23:59:61") if i == 1004 else ("", 1, "00:00:00")
    return locals()


def write(system, top):
    """The class and its register; returns both paths."""
    place, head, line, encoding = SYSTEMS[system]
    people = [person(i, name) for i, name in enumerate([*NAMES, MISSING], 1001)]
    files = {place.format(file=file, **one): data for one, (file, data) in zip(people, works(), strict=False)}
    downloaded, register = Path(top, f"{system}.zip"), Path(top, f"{system}.csv")
    downloaded.write_bytes(zipped(**files))
    register.write_bytes("\n".join([head, *(line.format(**one) for one in people)]).encode(encoding))
    return downloaded, register
