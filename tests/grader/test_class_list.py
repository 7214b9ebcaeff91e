"""Tests of `class_list`: class lists as fifteen systems and programs write them."""

import pytest

from npformer.grader.class_list import read_class_list

# For each form: the text, its encoding, the option --columns, and (id, name, email) of the students.
ANNA = ("4711", "Anna Smith", "anna@x.org")
FORMS = {
    "canvas gradebook": (
        "Student,ID,SIS User ID,SIS Login ID,Section,HW 1 (12),Current Score,Final Score\n"
        ",,,,,Manual Posting,,\n    Points Possible,,,,,10.00,(read only),(read only)\n"
        '"Smith, Anna",88,4711,anna@x.org,S1,,,\n"Student, Test",99,,a3f,S1,,,\n',
        "utf-8-sig",
        "",
        [("4711", "Smith, Anna", "")],
    ),
    "canvas gradebook, two names": (
        "LastName,FirstName,ID,SIS Login ID,Section\nSmith,Anna,88,anna,S1\n",
        "utf-8",
        "",
        [("88", "Anna Smith", "")],
    ),
    "canvas people": (
        "name,canvas_user_id,user_id,login_id,sections,group_name,canvas_group_id,group_id\n"
        '"Smith, Anna",88,4711,anna@x.org,S1,G1,5,\n',
        "utf-8",
        "",
        [("4711", "Smith, Anna", "")],
    ),
    "moodle participants": (
        '"First name","Last name","Email address",Roles,Groups,"Last access to course",Status\n'
        "Anna,Smith,anna@x.org,Student,,now,Active\nEva,Boss,eva@x.org,Teacher,,now,Active\n",
        "utf-8-sig",
        "",
        [("", "Anna Smith", "anna@x.org")],
    ),
    "moodle grading worksheet": (
        'Identifier,"Full name","ID number","Email address",Status,Grade,"Maximum grade",'
        '"Grade can be changed","Last modified (submission)","Last modified (grade)","Feedback comments"\n'
        '"Participant 88","Anna Smith",4711,anna@x.org,"No submission",,10.00,Yes,-,-,\n',
        "utf-8-sig",
        "",
        [ANNA],
    ),
    "moodle gradebook": (
        '"First name",Surname,"ID number",Institution,Department,"Email address",'
        '"Assignment: HW 1 (Real)","Last downloaded from this course"\nAnna,Smith,4711,,,anna@x.org,-,1772576100\n',
        "utf-8",
        "",
        [ANNA],
    ),
    "moodle gradebook in german": (
        'Vorname,Nachname,ID-Nummer,Anmeldename,E-Mail-Adresse,"Aufgabe: HW 1 (Punkte)"\n'
        "Anna,Smith,4711,asmith,anna@x.org,-\n",
        "utf-8",
        "",
        [ANNA],
    ),
    "moodle gradebook in french": (
        "Prénom,Nom,Numéro d'identification,Nom d'utilisateur,Adresse de courriel,\"Devoir : HW 1 (Brut)\"\n"
        "Anna,Smith,4711,asmith,anna@x.org,-\n",
        "utf-8",
        "",
        [ANNA],
    ),
    "moodle gradebook in spanish": (
        'Nombre,Apellido(s),"Número de ID","Nombre de usuario","Dirección de correo","Tarea: HW 1 (Real)"\n'
        "Anna,Smith,4711,asmith,anna@x.org,-\n",
        "utf-8",
        "",
        [ANNA],
    ),
    "gradescope roster": (
        "First Name,Last Name,SID,Email,Role,Sections\nAnna,Smith,4711,anna@x.org,Student,\n"
        "Eva,Boss,,eva@x.org,Instructor,\nTom,Helper,,tom@x.org,TA,\n",
        "utf-8",
        "",
        [ANNA],
    ),
    "gradescope scores": (
        "First Name,Last Name,SID,Email,Sections,Total Score,Max Points,Status,Submission ID,Submission Time,"
        "Lateness (H:M:S),View Count,Submission Count\n"
        "Anna,Smith,4711,anna@x.org,,,2.0,Missing,,,,,\n",
        "utf-8",
        "",
        [ANNA],
    ),
    "blackboard": (
        '"Last Name"\t"First Name"\t"Username"\t"Student ID"\t"Last Access"\t"Availability"\t'
        '"HW 1 [Total Pts: 10 Score] |12"\r\n"Smith"\t"Anna"\t"anna"\t"4711"\t"2026-03-03 22:15:00"\t"Yes"\t""\r\n',
        "utf-16",
        "",
        [("4711", "Anna Smith", "")],
    ),
    "brightspace": (
        "OrgDefinedId,Username,Last Name,First Name,Email,HW 1 Points Grade <Numeric MaxPoints:10>,"
        "End-of-Line Indicator\n#4711,#anna,Smith,Anna,anna@x.org,,#\n",
        "utf-8-sig",
        "",
        [ANNA],
    ),
    "nbgrader": (
        "id,first_name,last_name,email,lms_user_id\n4711,Anna,Smith,anna@x.org,88\n",
        "utf-8",
        "",
        [ANNA],
    ),
    "github classroom": (
        '"identifier","github_username","github_id","name"\n"4711","anna-s","998","Anna Smith"\n'
        '"Ben Ode","bode","999",""\n',
        "utf-8",
        "",
        [("4711", "Anna Smith", ""), ("Ben Ode", "Ben Ode", "")],
    ),
    "github classroom grades": (
        "assignment_name,github_username,roster_identifier,student_repository_name,points_awarded\n"
        "HW 1,anna-s,Anna Smith,hw1-anna-s,0\n",
        "utf-8",
        "",
        [("Anna Smith", "Anna Smith", "")],
    ),
    "google classroom": (
        "Last Name,First Name,Email Address,HW 1\nDate,,,2026-03-01\nPoints,,,10\nSmith,Anna,anna@x.org,\n"
        "Date,Eva,date@x.org,\nClass Average,,,\n",
        "utf-8",
        "",
        [("", "Anna Smith", "anna@x.org"), ("", "Eva Date", "date@x.org")],
    ),
    "excel, semicolons": (
        "\r\nStudent ID;Name;Email\r\n4711;Anna Smith;anna@x.org\r\n;;\r\n",
        "utf-8-sig",
        "",
        [ANNA],
    ),
    "excel, line sep": ("sep=;\r\nID;Name\r\n4711;Zoë\r\n", "cp1252", "", [("4711", "Zoë", "")]),
    "latin-1": ("ID,Name\n4711,Zo\x81\n", "latin-1", "", [("4711", "Zo\x81", "")]),
    "quoted names": (
        'Name,"ID; number",ID,Email\n"Smith,\nAnna",,4711,anna@x.org\n"Ode, ""Ben""",,4713\n',
        "utf-8",
        "",
        [("4711", "Smith, Anna", "anna@x.org"), ("4713", 'Ode, "Ben"', "")],
    ),
    "own table, German": (
        "Matrikelnummer;Nachname;Vorname;E-Mail\n4711;Smith;Anna;anna@x.org\n",
        "utf-8",
        "id=Matrikelnummer,last=Nachname,first=Vorname",
        [ANNA],
    ),
    "own table, French": (
        "Numéro d’étudiant,Nom complet,Courriel\n4711,Anna Smith,anna@x.org\n",
        "utf-8",
        "id=Numéro d’étudiant,name=Nom complet,email=Courriel",
        [ANNA],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_read_class_list_of_each_form(form, tmp_path):
    text, encoding, columns, expected = FORMS[form]
    (tmp_path / "r.csv").write_bytes(text.encode(encoding))
    students = read_class_list(tmp_path / "r.csv", columns)
    assert [student[:3] for student in students] == expected


KEYS = {
    "canvas gradebook": {"88", "4711", "anna@x.org"},
    "canvas people": {"88", "4711", "anna@x.org"},
    "moodle grading worksheet": {"88", "4711", "anna@x.org"},
    "moodle gradebook in german": {"4711", "asmith", "anna@x.org"},
    "moodle gradebook in french": {"4711", "asmith", "anna@x.org"},
    "moodle gradebook in spanish": {"4711", "asmith", "anna@x.org"},
    "brightspace": {"4711", "anna", "anna@x.org"},
    "nbgrader": {"88", "4711", "anna@x.org"},
    "github classroom": {"4711", "anna-s"},
}


@pytest.mark.parametrize("form", KEYS)
def test_read_class_list_reads_all_numbers_and_logins(form, tmp_path):
    text, encoding, columns, _ = FORMS[form]
    (tmp_path / "r.csv").write_bytes(text.encode(encoding))
    assert read_class_list(tmp_path / "r.csv", columns)[0].keys == KEYS[form]


UNREADABLE = {  # the bytes of a file, and a part of the message
    b'ID\n"' + b"x" * 200_000 + b'"\n': "expected a CSV table; field larger than",
    b"\xef\xbb\xbfID,Name\n1,Zo\xeb\n": "expected a CSV table; 'utf-8' codec can't decode byte 0xeb",
    b"PK\x03\x04\x00" + b"\xff" * 999: "the columns are PK\\x03\\x04",
    b"": "expected a column such as Student, Name, ID or Email",
}


@pytest.mark.parametrize("data", UNREADABLE, ids=map(str, range(len(UNREADABLE))))
def test_read_class_list_rejects_other_files(data, tmp_path):
    (tmp_path / "r.csv").write_bytes(data)
    with pytest.raises(ValueError, match=r"^r\.csv: expected") as error:
        read_class_list(tmp_path / "r.csv")
    assert UNREADABLE[data] in str(error.value) and len(str(error.value)) < 1500
