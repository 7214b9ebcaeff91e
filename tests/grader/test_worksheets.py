"""Tests of the round trip: points are filled into the tables that Moodle and Canvas import.

`import_moodle` and `import_canvas` find columns and rows as the importers of both systems do.
"""

import csv
import io
from datetime import datetime

import pytest
from class_files import format_options, write_text

from npformer import cli
from npformer.exercises.assignment_file import make_assignment
from npformer.grader.class_list import Student, read_class_list
from npformer.grader.grading_process import Row
from npformer.grader.points import Attempt, StudentPoints
from npformer.grader.worksheets import add_lateness, fill_worksheet, list_students, read_worksheet

MOODLE = (
    'Identifier,"Full name","ID number","Email address",Status,Grade,"Maximum grade","Grade can be changed",'
    '"Last modified (submission)","Last modified (grade)","Feedback comments"\n'
    '"Participant 88","Anna Smith",4711,anna@x.org,"Submitted for grading",,10.00,Yes,'
    '"Tuesday, 3 March 2026, 10:15 PM",-,"Well\ndone, ""Anna"""\n'
    '"Participant 89","Anna Smith",4712,smith@x.org,"Submitted for grading",1.00,10.00,Yes,'
    '"Tuesday, 3 March 2026, 9:15 PM","Wednesday, 4 March 2026, 9:15 PM",\n'
    '"Participant 90","Zoë Núñez",4713,zoe@x.org,"No submission",,10.00,Yes,-,-,\n'
)
GERMAN = (
    'ID,"Vollständiger Name",ID-Nummer,E-Mail-Adresse,Status,Bewertung,Bestwertung,'
    '"Bewertung kann geändert werden","Zuletzt geändert (Abgabe)","Zuletzt geändert (Bewertung)",'
    '"Feedback als Kommentar"\n'
    'Teilnehmer/in88,"Anna Smith",4711,anna@x.org,"Zur Bewertung abgegeben",,"10,00",Ja,'
    '"Dienstag, 3. März 2026, 22:15",-,\n'
    'Teilnehmer/in89,"Anna Smith",4712,smith@x.org,"Zur Bewertung abgegeben","1,00","10,00",Ja,'
    '"Dienstag, 3. März 2026, 21:15","Mittwoch, 4. März 2026, 21:15",\n'
    'Teilnehmer/in90,"Zoë Núñez",4713,zoe@x.org,"Keine Abgabe",,"10,00",Ja,-,-,\n'
)
FRENCH = (
    'Identifiant,"Nom complet","Numéro d’identification","Adresse de courriel",Statut,Note,"Note maximale",'
    '"La note peut être modifiée","Dernière modification (travail remis)","Dernière modification (note)",'
    '"Feedback par commentaires"\n'
    'Participant88,"Anna Smith",4711,anna@x.org,"Remis pour évaluation",,"10,00",Oui,'
    '"mardi 3 mars 2026, 22:15",-,\n'
    'Participant89,"Anna Smith",4712,smith@x.org,"Remis pour évaluation","1,00","10,00",Oui,'
    '"mardi 3 mars 2026, 21:15","mercredi 4 mars 2026, 21:15",\n'
    'Participant90,"Zoë Núñez",4713,zoe@x.org,"Aucun travail remis",,"10,00",Oui,-,-,\n'
)
SPANISH = (
    'Identificador,"Nombre completo","Número de ID","Dirección de correo",Estado,Calificación,'
    '"Calificación máxima","La calificación puede ser cambiada","Última modificación (entrega)",'
    '"Última modificación (calificación)","Comentarios de retroalimentación"\n'
    'Participante88,"Anna Smith",4711,anna@x.org,"Enviado para calificar",,"10,00",Sí,'
    '"martes, 3 de marzo de 2026, 22:15",-,\n'
    'Participante89,"Anna Smith",4712,smith@x.org,"Enviado para calificar","1,00","10,00",Sí,'
    '"martes, 3 de marzo de 2026, 21:15","miércoles, 4 de marzo de 2026, 21:15",\n'
    'Participante90,"Zoë Núñez",4713,zoe@x.org,"Sin entrega",,"10,00",Sí,-,-,\n'
)
# For each language: a worksheet, the three columns that Moodle's importer finds, and the word before a number.
LANGUAGES = {
    "English": (MOODLE, ("Identifier", "Grade", "Last modified (grade)"), "Participant "),
    "German": (GERMAN, ("ID", "Bewertung", "Zuletzt geändert (Bewertung)"), "Teilnehmer/in"),
    "French": (FRENCH, ("Identifiant", "Note", "Dernière modification (note)"), "Participant"),
    "Spanish": (
        SPANISH,
        ("Identificador", "Calificación", "Última modificación (calificación)"),
        "Participante",
    ),
}
CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,HW 1 (55),HW 2 (56),Current Score,Final Score\n"
    ",,,,,Manual Posting,,,\n"
    "    Points Possible,,,,,10.00,5.00,(read only),(read only)\n"
    '"Núñez, Zoë",90,4713,zoe,S1,,,,\n"Smith, Anna",88,4711,anna,S1,,3.00,60.0,60.0\n'
    '"Ode, Ben",91,4714,ben,S1,EX,,,\n"Petit, Jean",92,4715,jean,S1,N/A,,,\n'
    '"Student, Test",99,,9af3,S1,,,,\n'
)
TITLE = {"title": "HW 1"}


def parse(data):
    """Return the lines of a CSV file in UTF-8; the importers of both systems remove the byte order mark."""
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def import_moodle(data, language="English"):
    """Return {number of the participant: (grade, last modification of the grade)}.

    The identifier is, for example, "Participant 17". Like Moodle's importer, this function removes as many
    characters from its beginning as the word "Participant" has in that language.
    """
    header, *rows = parse(data)
    _, names, word = LANGUAGES[language]
    number, grade, modified = map(header.index, names)
    return {row[number][len(word) :]: (row[grade], row[modified]) for row in rows}


def import_canvas(data, assignment_id):
    """Return {Canvas' number of the student: grade}."""
    header, *rows = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
    assert "Student" in header[0] and "ID" in header[1] and "Section" in header[4]
    (column,) = (index for index, name in enumerate(header) if name.endswith(f" ({assignment_id})"))
    return {row[1]: row[column] for row in rows if row[1]}


def make_points(student, total, has_file=True, status="pass"):
    """Return the points of a student for one exercise."""
    row = Row("hw.py", "", "order.bag", status)
    attempts = [Attempt(total, row, 0)]
    return StudentPoints(student, {"order.bag": total}, 0, attempts, ["hw.py"] if has_file else [])


def make_worksheet(tmp_path, text, encoding="utf-8", **changes):
    """Write a file and read it as a worksheet."""
    (tmp_path / "w.csv").write_bytes(text.encode(encoding))
    return read_worksheet(tmp_path / "w.csv", make_assignment(["order.bag"])._replace(**changes))


# --- filling ---------------------------------------------------------------------------------------


def test_fill_worksheet_of_moodle_changes_only_grades(tmp_path):
    worksheet = make_worksheet(tmp_path, MOODLE)
    anna, other_anna, zoe = list_students(worksheet)
    class_points = [make_points(anna, 2.5), make_points(other_anna, 0.0), make_points(zoe, 0.0, False)]
    data, undecided = fill_worksheet(worksheet, class_points)
    assert undecided == []
    assert import_moodle(data) == {
        "88": ("2.5", "-"),
        "89": ("0", "Wednesday, 4 March 2026, 9:15 PM"),
        "90": ("", "-"),
    }
    old, new = parse(MOODLE.encode()), parse(data)
    changes = {(i, old[0][j]) for i, row in enumerate(old) for j, cell in enumerate(row) if cell != new[i][j]}
    assert changes == {(1, "Grade"), (2, "Grade")} and list(map(len, old)) == list(map(len, new))


@pytest.mark.parametrize("language", LANGUAGES)
def test_fill_worksheet_of_moodle_in_each_language(language, tmp_path):
    text, names, _ = LANGUAGES[language]
    worksheet = make_worksheet(tmp_path, text)
    anna, other_anna, zoe = list_students(worksheet)
    keys = [{"88", "4711", "anna@x.org"}, {"89", "4712", "smith@x.org"}, {"90", "4713", "zoe@x.org"}]
    assert [student.keys for student in (anna, other_anna, zoe)] == keys
    assert anna[:3] == ("4711", "Anna Smith", "anna@x.org")
    times = (datetime(2026, 3, 3, 22, 15).timestamp(), datetime(2026, 3, 3, 21, 15).timestamp(), None)
    assert tuple(student.submitted for student in (anna, other_anna, zoe)) == times
    class_points = [make_points(anna, 2.5), make_points(other_anna, 0.0), make_points(zoe, 0.0, False)]
    data, undecided = fill_worksheet(worksheet, class_points)
    assert undecided == []
    assert data.startswith(b"\xef\xbb\xbf"), "Excel needs the mark for the accents, and Moodle removes it."
    filled = import_moodle(data, language)
    assert {number: grade for number, (grade, _) in filled.items()} == {"88": "2.5", "89": "0", "90": ""}
    old, new = parse(text.encode()), parse(data)
    changes = {(i, old[0][j]) for i, row in enumerate(old) for j, cell in enumerate(row) if cell != new[i][j]}
    assert changes == {(1, names[1]), (2, names[1])}


def test_fill_worksheet_of_canvas_changes_one_column(tmp_path):
    worksheet = make_worksheet(tmp_path, CANVAS, **TITLE)
    zoe, anna, ben, jean = list_students(worksheet)
    class_points = [make_points(student, 1 / 3) for student in (zoe, anna, ben, jean)]
    data, undecided = fill_worksheet(worksheet, class_points)
    assert import_canvas(data, 55) == {"90": "0.333333", "88": "0.333333", "91": "EX", "92": "N/A", "99": ""}
    assert import_canvas(data, 56) == import_canvas(CANVAS.encode(), 56)
    assert parse(data)[1:3] == parse(CANVAS.encode())[1:3], "rows without students"
    assert undecided == [
        "Ode, Ben (4714) has 0.333333 points, but the grade EX in w.csv is kept",
        "Petit, Jean (4715) has 0.333333 points, but the grade N/A in w.csv is kept",
    ]


def test_fill_worksheet_finds_students_of_another_class_list(tmp_path):
    worksheet = make_worksheet(tmp_path, CANVAS, **TITLE)
    students = {
        "number": Student("88", "", "", frozenset({"88"})),
        "name": Student("", "Zoe Nunez", ""),
        "first": Student("", "Ben Ode", "", frozenset({"ben"})),
        "again": Student("", "Benjamin", "", frozenset({"4714"})),
        "nobody": Student("", "Nobody", ""),
    }
    data, undecided = fill_worksheet(worksheet, [make_points(student, 4.0) for student in students.values()])
    assert import_canvas(data, 55) == {"90": "4", "88": "4", "91": "EX", "92": "N/A", "99": ""}
    assert undecided == [
        "Nobody has 4 points, but not exactly one row in w.csv",
        "Ben Ode has 4 points, but shares a row in w.csv",
        "Benjamin has 4 points, but shares a row in w.csv",
    ]


def test_fill_worksheet_keeps_grades_of_unread_submissions(tmp_path):
    """A submission that was not read has 0 points, which may not be the student's fault."""
    worksheet = make_worksheet(tmp_path, MOODLE)
    _, other_anna, _ = list_students(worksheet)
    data, undecided = fill_worksheet(worksheet, [make_points(other_anna, 0.0, status="not read")])
    assert import_moodle(data)["89"][0] == "1.00"
    assert undecided == ["the submission of Anna Smith (4712) was not read; w.csv is kept"]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_fill_worksheet_keeps_the_form_of_the_file(mark, newline, delimiter, tmp_path):
    encoding = "utf-16-le" if mark == b"\xff\xfe" else "utf-8"
    lines = ["Identifier,Grade,Last modified (grade)", "Participant 1,,-", "Participant 2,,-", ""]
    text = newline.join(lines).replace(",", delimiter)
    (tmp_path / "w.csv").write_bytes(mark + text.encode(encoding))
    worksheet = read_worksheet(tmp_path / "w.csv", make_assignment(["order.bag"]))
    data, _ = fill_worksheet(worksheet, [make_points(list_students(worksheet)[1], 1.0)])
    filled = text.replace(f"2{delimiter}", f"2{delimiter}1")
    assert data == mark + filled.encode(encoding)


@pytest.mark.parametrize(
    ("header", "is_marked"),
    [
        ("Identifier,Full name,Grade,Last modified (grade)", True),
        ("Student,ID,Section,HW (1)", True),
        ("LastName,FirstName,ID,Section,HW (1)", False),
    ],
)
def test_fill_worksheet_adds_byte_order_mark_for_excel(header, is_marked, tmp_path):
    """Excel reads accents only with the mark. Canvas rejects the mark before LastName."""
    worksheet = make_worksheet(tmp_path, f"{header}\nZoë,1,2\n")
    data, _ = fill_worksheet(worksheet, [])
    assert data.startswith(b"\xef\xbb\xbf") == is_marked


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_fill_worksheet_keeps_other_encodings(encoding, tmp_path):
    worksheet = make_worksheet(tmp_path, "Student,ID,Section,HW (1)\nZoë,1,A,\n", encoding)
    data, _ = fill_worksheet(worksheet, [make_points(list_students(worksheet)[0], 1.0)])
    assert data.decode(encoding) == "Student,ID,Section,HW (1)\nZoë,1,A,1\n"


# --- reading ---------------------------------------------------------------------------------------

REJECTED = {  # the text of a file, and a part of the message
    "": "expected Moodle's grading worksheet (columns in English: Identifier, Grade, Last modified (grade); in",
    "ID,Betyg\n": "in German: ID, Bewertung, Zuletzt geändert (Bewertung); in French: Identifiant, Note, Derni",
    "Betyg,ID\n": "in Spanish: Identificador, Calificación, Última modificación (calificación)) or Canvas'",
    "ID,Bewertung,Last modified (grade)\n": "; the columns are ID, Bewertung, Last modified (grade)",
    GERMAN.replace("10,00", "0,5"): "the maximum grade is 0,5; Moodle ignores larger grades",
    FRENCH.replace("10,00", "0,5"): "the maximum grade is 0,5; Moodle ignores larger grades",
    SPANISH.replace("10,00", "0,5"): "the maximum grade is 0,5; Moodle ignores larger grades",
    "Name,Grade\n": "or Canvas' gradebook (columns Student, ID, Section); the columns are Name, Grade",
    MOODLE.replace("10.00", "0.5"): "the assignment gives 1 point, the maximum grade is 0.5; Moodle ignores",
    MOODLE.replace("10.00", '"0,5"'): "the maximum grade is 0,5; Moodle ignores larger grades",
    MOODLE.replace("10.00", "Good"): "expected a number as maximum grade, got 'Good'",
    CANVAS: "the title is 'The class', the assignments are HW 1 (55), HW 2 (56)",
    CANVAS.replace(" (5", " 5"): "the title is 'The class', the assignments are none",
}


@pytest.mark.parametrize("text", REJECTED, ids=map(str, range(len(REJECTED))))
def test_read_worksheet_rejects_other_tables(text, tmp_path):
    with pytest.raises(ValueError, match=r"^w\.csv: expected|^w\.csv: the") as error:
        make_worksheet(tmp_path, text)
    assert REJECTED[text] in str(error.value)


@pytest.mark.parametrize(
    ("title", "assignments"), [("HW 2", "HW 1 (5),HW 2 (6)"), ("HW (6)", "HW (5),HW (6)"), ("x", "HW 1 (5)")]
)
def test_read_worksheet_finds_the_column_of_the_title(title, assignments, tmp_path):
    worksheet = make_worksheet(tmp_path, f"Student,ID,Section,{assignments},Final Score\n", title=title)
    assert worksheet.table.header[worksheet.column] == assignments.split(",")[-1]


def test_add_lateness_keeps_times_of_the_class_list(tmp_path):
    text = "Identifier,Username,Grade,Last modified (grade),Last modified (submission)\n"
    worksheet = make_worksheet(tmp_path, f"{text}1,anna,,-,-\n2,ben,,-,2026-03-03 22:15:00 UTC\n3,cem,,-,x\n")
    roster = write_text(tmp_path / "r.csv", "Login,Minutes late\nanna,1\nben,\ncem,\ndan,\n")
    anna, ben, cem, dan = add_lateness(read_class_list(roster), worksheet)
    assert (anna.late, ben.submitted, cem.unread_time, dan.unread_time) == (60.0, 1772576100.0, "x", "")


# --- the command -----------------------------------------------------------------------------------

HOMEWORK = "due = 2026-03-03T22:00:00\nlate = {per_day = 0.5}\ntitle = 'HW 1'\n[points]\norder.bag = 4"


@pytest.fixture
def grade(tmp_path, cached_grading, capsys):
    """Return a function that grades a class with these options, and returns the exit code and the output."""
    folder = tmp_path / "class"
    for number in (88, 89):
        path = folder / f"Anna Smith_{number}_assignsubmission_file_"
        path.mkdir(parents=True)
        write_text(path / "hw.py", "order_bag = 'b'")
    write_text(tmp_path / "moodle.csv", MOODLE)

    def run(**options):
        assignment = write_text(tmp_path / "hw.toml", HOMEWORK)
        arguments = format_options(csv=tmp_path / "o.csv", assignment=assignment, **options)
        code = cli.main(["grade", str(folder), *arguments])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


def test_grade_fills_the_worksheet_into_a_new_file(grade, tmp_path):
    code, output = grade(worksheet=tmp_path / "moodle.csv")
    assert code == 0 and f"written: {tmp_path / 'moodle-graded.csv'}" in output
    assert (tmp_path / "moodle.csv").read_text(encoding="utf-8") == MOODLE


@pytest.mark.parametrize("language", LANGUAGES)
def test_grade_finds_lateness_in_each_language(language, grade, tmp_path):
    text, *_ = LANGUAGES[language]
    write_text(tmp_path / "moodle.csv", text)
    code, output = grade(worksheet=tmp_path / "moodle.csv")
    assert code == 0 and "To decide" not in output and "No lateness" not in output
    grades = import_moodle((tmp_path / "moodle-graded.csv").read_bytes(), language)
    assert [grade for grade, _ in grades.values()] == ["2", "4", ""], "the first student is late"


def test_grade_uses_the_class_list_beside_the_worksheet(grade, tmp_path):
    roster = write_text(tmp_path / "r.csv", "Identifier,Kennung\n88,4711\n99,4712\n")
    code, output = grade(worksheet=tmp_path / "moodle.csv", roster=roster, columns="login=Kennung")
    grades = import_moodle((tmp_path / "moodle-graded.csv").read_bytes())
    assert code == 0 and [grade for grade, _ in grades.values()] == ["2", "1.00", ""]
    assert "To decide: Anna Smith_89_assignsubmission_file_/hw.py fits no student" in output
    assert "Missing: 99" in output


def test_grade_rejects_a_worksheet_without_names(grade, tmp_path):
    code, output = grade(worksheet=tmp_path / "moodle.csv", anonymous=tmp_path / "k.csv")
    assert code == 2 and "--worksheet needs the students, so it cannot be used with --anonymous" in output
