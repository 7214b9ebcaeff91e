"""The answer to a prediction, and the copy of a lesson that a reader gets."""

import copy

from npformer.teaching.lessons import answers, reveal, student_copy


def test_an_answer_is_markdown_in_a_notebook_and_text_in_a_terminal():
    answer = reveal("1.1a")
    assert answer._repr_markdown_() == f"**Answer.** {answer.text}"
    assert repr(answer) == f"Answer. {answer.text}" and answer.text == answers(1)["1.1a"]


def test_a_student_copy_has_no_results_and_the_original_keeps_its_own():
    code = {"cell_type": "code", "source": "1", "metadata": {"a": 1}, "outputs": ["3"], "execution_count": 4}
    lesson = {"metadata": {}, "cells": [{"cell_type": "markdown", "source": "# 1", "metadata": {}}, code]}
    before = copy.deepcopy(lesson)
    text, copied = student_copy(lesson)["cells"]
    assert lesson == before and text == lesson["cells"][0]
    assert copied == code | {"outputs": [], "execution_count": None}
