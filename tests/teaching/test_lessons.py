"""A prediction's question, its cell and its answer: read from a notebook, and refused when broken."""

import copy

import pytest

from npformer.teaching import lessons
from npformer.teaching.lessons import answers, predicts, reveal, student_copy

QUESTION = "Two sums.\n\n**Predict.** Are they equal?\nSay why."


def cell(kind, source, **roles):
    own = {"outputs": ["3"], "execution_count": 4} if kind == "code" else {}
    return {"cell_type": kind, "source": source, "metadata": {"npformer": roles} if roles else {}, **own}


def small_lesson():
    return {
        "metadata": {},
        "cells": [
            cell("markdown", "# 1. A lesson"),
            cell("code", "x = 1"),
            cell("markdown", QUESTION, predict="1.1a"),
            cell("markdown", "Think first."),
            cell("code", ["print(x)\n", 'reveal("1.1a")'], reveal="1.1a"),
        ],
    }


def test_an_answer_is_markdown_in_a_notebook_and_text_in_a_terminal():
    answer = reveal("1.1a")
    assert answer._repr_markdown_() == f"**Answer.** {answer.text}"
    assert repr(answer) == f"Answer. {answer.text}" and answer.text == answers(1)["1.1a"]
    for id, words in (("1.1z", "; that lesson has 1.1a, 1.1b"), ("77.1a", "; an id is such as '1.1a'")):
        with pytest.raises(ValueError, match=f"^reveal: there is no answer {id!r}{words}"):
            reveal(id)
    with pytest.raises(TypeError, match=r"^reveal: id is a float; expected a string"):
        reveal(1.1)


def test_a_tool_can_read_question_cell_and_answer():
    (found,) = predicts(small_lesson())
    assert found == ("1.1a", "Are they equal?\nSay why.", 4, answers(1)["1.1a"])


@pytest.mark.parametrize(
    "break_it",
    [
        lambda cells: cells.pop(),
        lambda cells: cells[4].update(metadata={}),
        lambda cells: cells[4]["metadata"]["npformer"].update(reveal="1.1b"),
        lambda cells: cells.insert(3, cell("code", "y = 2")),
    ],
)
def test_a_question_whose_answer_is_elsewhere_is_refused(break_it):
    lesson = small_lesson()
    break_it(lesson["cells"])
    with pytest.raises(ValueError, match=r"the code cell after question '1.1a' does not reveal it"):
        predicts(lesson)


def test_a_student_copy_has_no_results_and_the_original_keeps_its_own():
    lesson = small_lesson()
    before = copy.deepcopy(lesson)
    copied = student_copy(lesson)
    assert lesson == before
    assert [c["outputs"] for c in copied["cells"] if c["cell_type"] == "code"] == [[], []]
    assert [c["execution_count"] for c in copied["cells"] if c["cell_type"] == "code"] == [None, None]
    assert [c["source"] for c in copied["cells"]] == [c["source"] for c in lesson["cells"]]
    assert lessons.predicts(copied) == lessons.predicts(lesson)
