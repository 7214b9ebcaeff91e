"""The answer to a prediction, and the copy of a lesson that a reader gets."""

import copy

import pytest

from npformer.teaching.lessons import answers, reveal, student_copy


def test_an_answer_is_markdown_in_a_notebook_and_text_in_a_terminal():
    answer = reveal("1.1a")
    assert answer._repr_markdown_() == f"**Answer.** {answer.text}"
    assert repr(answer) == f"Answer. {answer.text}" and answer.text == answers(1)["1.1a"]
    for id, words in (("1.1z", "; that lesson has 1.1a, 1.1b"), ("77.1a", "; an id is such as '1.1a'")):
        with pytest.raises(ValueError, match=f"^reveal: there is no answer {id!r}{words}"):
            reveal(id)
    with pytest.raises(TypeError, match=r"^reveal: id is a float; expected a string"):
        reveal(1.1)


def test_a_student_copy_has_no_results_and_the_original_keeps_its_own():
    code = {"cell_type": "code", "source": "1", "metadata": {"a": 1}, "outputs": ["3"], "execution_count": 4}
    lesson = {"metadata": {}, "cells": [{"cell_type": "markdown", "source": "# 1", "metadata": {}}, code]}
    before = copy.deepcopy(lesson)
    text, copied = student_copy(lesson)["cells"]
    assert lesson == before and text == lesson["cells"][0]
    assert copied == code | {"outputs": [], "execution_count": None}
