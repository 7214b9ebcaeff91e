"""Create a new exercise: its text, its code, an example mistake, example answers, a week in the course."""

import re

from scaffolds.files import (
    ROOT,
    CannotCreate,
    filled,
    print_steps,
    read,
    sort_imports,
    write_all,
)
from scaffolds.operation import with_import
from scaffolds.sections import part_number, section_number, with_paragraph

BANK = "npformer/exercises/bank"
QUESTIONS = f"{BANK}/questions.md"
MISTAKES = f"{BANK}/mistakes.md"
CODINGS = "tests/exercises/codings"
PLAIN_ANSWERS = "tests/exercises/plain_answers.txt"
COURSE = "notebooks/guide/course.md"
KINDS = ("letter", "truth", "numbers", "function")

TEXT = """
## <id> (<topic>, level <level>)

MISSING: write the task, in one paragraph. <how>

<answers>Hint: MISSING: write a hint.
Ask: MISSING: write the question that the feedback asks.
"""
HOW = {
    "letter": "It is answered with a letter.",
    "truth": "It is a claim that is true or false.",
    "numbers": "It contains {n}, the number that is drawn.",
    "function": "Name the arguments, their shapes, and what is returned.",
}
ANSWERS = {
    "letter": """- [x] MISSING: write the correct option.
- [ ] MISSING: write a wrong option.
  <CODE>: MISSING: write what is wrong with this option.

""",
    "truth": """- [x] True
- [ ] False
  <CODE>: MISSING: write why this answer is wrong.

""",
    "numbers": """- <CODE>: MISSING: write what this wrong number counts.

""",
    "function": "",
}
NUMBERS = '''

@number_exercise("<id>")
def <function>(draw: Draw) -> PosedQuestion:
    """MISSING: name the number."""
    n = draw.integer(10, 6, 30)  # MISSING: draw the numbers of the task
    return PosedQuestion({"n": n}, n, {  # MISSING: calculate the answer
        "<CODE>": 2 * n,  # MISSING: calculate what each confusion makes of it
    })
'''
FUNCTION = '''

# MISSING: name the outputs and the axes, add one call for each edge of the task, and write the solution.
<function>_exercise = function_exercise("<id>",
    ("dx",), (),
    axes="x: rows columns; dx: rows columns",
    ours=None,  # MISSING: remove this line if npformer has the function
    solution="""
def <function>(x):
    return 2 * x
""",
    mistakes={  # MISSING: write each mistake as an edit of the solution's text
        "<CODE>": [Edit("2 * x", "-2 * x")],
    })
'''
# The imports of the two templates above, by kind.
IMPORTS = {
    "numbers": {
        "npformer.exercises.bank.questions": ["number_exercise"],
        "npformer.exercises.task": ["Draw", "PosedQuestion"],
    },
    "function": {
        "npformer.exercises.bank.questions": ["function_exercise"],
        "npformer.exercises.task": ["Edit"],
    },
}
MISTAKE = """
## <CODE>
MISSING: write what is observed.
MISSING: write the likely cause.
MISSING: write one question.
"""
CODING = """## <id> | right |
own("<id>")  # MISSING: write the solution as a student would, at least two times
## <id> | wrong <CODE> |
lambda x: -own("<id>")(x)  # MISSING: write the mistakes as students would, at least five
"""
PLAIN_CODING = {
    "letter": "<id> | right | 'a'\n<id> | wrong | 'b'\n",
    "truth": "<id> | right | True\n<id> | wrong | False\n",
    "numbers": "<id> | right | 10\n<id> | wrong | 20\n",
}


def files_of_bank():
    """Return {file name: ids of the exercises in this file} for the Python files of the bank."""
    paths = sorted((ROOT / BANK).glob("*.py"))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    return {
        name: re.findall(r'(?:function_exercise|number_exercise)\("([\w.]+)"', text)
        for name, text in texts.items()
    }


def sections_of_exercises(questions):
    """Return {id: (lesson, section)} for the exercises in questions.md."""
    found = {}
    for part in re.split(r"^(?=# \d\d, section )", questions, flags=re.MULTILINE)[1:]:
        for exercise in re.findall(r"^## (\S+) \(", part, re.MULTILINE):
            found[exercise] = part_number(part)
    return found


def chosen_section(exercise, section, sections):
    """Return the given section, or by default the last section that has an exercise with the same prefix."""
    if section:
        return section_number(section)
    prefix = exercise.partition(".")[0] + "."
    relatives = [place for other, place in sections.items() if other.startswith(prefix)]
    if not relatives:
        raise CannotCreate("say which section teaches it, such as --section 07.2")
    return relatives[-1]


def chosen_file(exercise, file, place, sections):
    """Return the given file, or by default the file of an exercise with the same prefix or section."""
    files = files_of_bank()
    if file:
        if not files.get(file):
            with_exercises = ", ".join(name for name, ids in files.items() if ids)
            raise CannotCreate(f"the bank has no file {file!r}; it has {with_exercises}")
        return file
    prefix = exercise.partition(".")[0] + "."
    for name, ids in files.items():
        if any(other.startswith(prefix) for other in ids):
            return name
    for name, ids in files.items():
        if any(sections.get(other) == place for other in ids):
            return name
    raise CannotCreate("say which file of the bank it belongs to, such as --file loss")


def with_homework(text, exercise, lesson):
    """Return the text of the course page; add the exercise to the last week of this lesson."""
    lines = text.splitlines(keepends=True)
    weeks = [i for i, line in enumerate(lines) if re.match(rf"\| \d+ \|[^|]*[Ll]esson {lesson}\b", line)]
    if not weeks:
        raise CannotCreate(f"{COURSE} has no week with lesson {lesson}")
    before, row, after = lines[: weeks[-1]], lines[weeks[-1]], lines[weeks[-1] + 1 :]
    *cells, homework, end = row.split("|")
    ids, semicolon, remark = homework.rstrip().partition(";")
    cells = [*cells, f"{ids} {exercise}{semicolon}{remark} ", end]
    return "".join([*before, "|".join(cells), *after])


def code_of_exercise(kind, file, values):
    """Return {path: new text} for an exercise that needs code because it asks for numbers or a function."""
    path = f"{BANK}/{file}.py"
    text = read(path)
    for module, names in IMPORTS[kind].items():
        text = with_import(text, module, names)
    if kind == "numbers":
        return {path: text.rstrip() + "\n" + filled(NUMBERS, **values)}
    codings = f"{CODINGS}/{file}.txt"
    before = read(codings) if (ROOT / codings).exists() else ""
    return {
        path: text.rstrip() + "\n" + filled(FUNCTION, **values),
        codings: before + filled(CODING, **values),
    }


def create_exercise(exercise, kind, section, file, topic, level):
    """Create the text, the code and the example answers of an exercise."""
    if not re.fullmatch(r"[a-z]\w*\.[a-z]\w*", exercise):
        raise CannotCreate(f"{exercise!r} is no id of an exercise; expected one such as kl.backward")
    questions = read(QUESTIONS)
    sections = sections_of_exercises(questions)
    if exercise in sections:
        raise CannotCreate(f"{QUESTIONS} has the exercise {exercise} already; choose another id")
    lesson, number = chosen_section(exercise, section, sections)
    code = exercise.upper().replace(".", "-").replace("_", "-") + "-WRONG"
    values = {"id": exercise, "CODE": code, "function": exercise.replace(".", "_")}
    values |= {"topic": topic or topic_of(exercise, questions, lesson, number), "level": str(level)}
    text = filled(TEXT, **values, how=HOW[kind], answers=filled(ANSWERS[kind], **values))
    texts = {
        QUESTIONS: with_paragraph(questions, lesson, number, text),
        COURSE: with_homework(read(COURSE), exercise, lesson),
    }
    if kind in PLAIN_CODING:
        texts[PLAIN_ANSWERS] = read(PLAIN_ANSWERS) + filled(PLAIN_CODING[kind], **values)
    if kind == "function":
        texts[MISTAKES] = with_paragraph(read(MISTAKES), lesson, number, filled(MISTAKE, **values))
    if kind in ("numbers", "function"):
        bank_file = chosen_file(exercise, file, (lesson, number), sections)
        texts |= code_of_exercise(kind, bank_file, values)
    write_all(texts)
    sort_imports(*[path for path in texts if path.endswith(".py")])
    print_steps([
        f"The topic is {values['topic']!r} and the level is {level}. "
        f"If one of them is wrong, change it in {QUESTIONS}.",
        f"Replace every mark in these files; `uv run npformer show {exercise}` shows the task.",
        "`uv run python tests/new.py exercises` writes the student's notebook and the tables.",
        "`uv run pytest tests/exercises tests/test_project_rules.py`: the failing tests say what is missing.",
    ])  # fmt: skip


def topic_of(exercise, questions, lesson, number):
    """Return the topic of the last exercise with the same prefix, or else of the same section.

    An id such as kl.backward has the topic "backward".
    """
    if exercise.endswith(".backward"):
        return "backward"
    topics = dict(re.findall(r"^## (\S+) \((.+), level \d\)", questions, re.MULTILINE))
    sections = sections_of_exercises(questions)
    prefix = exercise.partition(".")[0] + "."
    same_prefix = [topic for other, topic in topics.items() if other.startswith(prefix)]
    same_section = [topic for other, topic in topics.items() if sections[other] == (lesson, number)]
    topics_of_relatives = same_prefix or same_section
    if not topics_of_relatives:
        known = ", ".join(sorted(set(topics.values())))
        raise CannotCreate(f"give the exercise a topic, such as --topic loss; the bank has {known}")
    return topics_of_relatives[-1]
