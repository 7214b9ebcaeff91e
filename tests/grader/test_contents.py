"""Tests of the contents of submissions: one bad line costs one line, and the first problem is reported."""

import pytest
from contents import CONTENTS, IDS

from npformer.grader.companions import Companions
from npformer.grader.worker.statements import MAIN_BLOCK


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_grade_bad_line_costs_only_its_statement(thread_grader, content):
    rows = thread_grader.grade(content.name, content.data, IDS, Companions(files=content.files))
    assert {row.exercise for row in rows if row.passed} == content.due, rows
    (problem,) = {row.problem for row in rows}
    assert content.problem in problem and bool(content.problem) == bool(problem)


def test_grade_names_files_that_are_left_out(thread_grader):
    (row,) = thread_grader.grade("a.py", b"order_bag = 'b'", IDS[:1], Companions(left_out=("w.csv", "x.csv")))
    assert row.problem == "These files are left out because they are too large or too many: w.csv, x.csv."


def test_grade_missing_answer_names_its_own_statement(thread_grader):
    """The statement that should define the answer fails as the fourth. Only three failures are reported."""
    text = "1 / 0\n1 / 0\n1 / 0\nif open('x'):\n    def pe_table(n, d_model): return n\n"
    bag, table, softmax = thread_grader.grade("a.py", text.encode(), IDS)
    reason = "line 4: FileNotFoundError: [Errno 2] No such file or directory: 'x'; the statement was skipped."
    assert table.evidence == reason and table.status == bag.status == softmax.status == "not read"
    assert bag.evidence == bag.problem and reason not in bag.problem


def test_grade_explains_answers_in_a_main_block(thread_grader):
    """A file is imported, so the block did not run. The reason is given for each answer of the block."""
    text = "if __name__ == '__main__':\n    order_bag = 'b'\n    scale = 2\npe_table = scale\n"
    bag, table, _ = thread_grader.grade("a.py", text.encode(), IDS)
    assert (bag.status, table.status) == ("not read", "not read")
    assert bag.evidence == f"line 1: {MAIN_BLOCK}"
    assert "NameError: name 'scale' is not defined because line 1 did not run;" in table.evidence
