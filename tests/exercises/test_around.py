"""What happens around an answer: loops without an end, chance, a changed NumPy, answers without measure."""

import threading
from functools import partial

import numpy as np
import pytest

from npformer.exercises import check, reply
from npformer.exercises.probe import within
from npformer.exercises.task import Edit, Numbers
from npformer.exercises.topics import bank

check = partial(check, level=3)  # which says most


def endless(s):
    while True:
        s = s + 0


def test_an_endless_answer_ends(monkeypatch):
    monkeypatch.setattr(reply, "SECONDS", 0.05)
    result = check("softmax.forward", endless, level=3)
    assert result.evidence == "It was still running after 0.05 seconds."
    assert check("order.bag", "b"), "the clock has been put away"


def test_where_there_is_no_clock_nothing_is_stopped():
    seen = []

    def a_student_s():
        with within(0.0):
            seen.append(sum(range(1000)))

    thread = threading.Thread(target=a_student_s)
    thread.start()
    thread.join()
    assert seen == [499500]


def test_a_changed_numpy_is_told_before_anybody_is_blamed(monkeypatch):
    monkeypatch.setattr(np, "exp", lambda x: x)
    assert "np.exp is not NumPy's own" in check("order.bag", "b").evidence


def test_a_student_s_numbers_tell_causes_apart_where_any_do_and_else_the_reply_says_one_of():
    tasks = [task for task in bank().values() if isinstance(task, Numbers)]
    alike = {task.id: sum(task.alike(task.posed(f"s{i}")) for i in range(10)) for task in tasks}
    assert {name for name, many in alike.items() if many} <= {
        "pe.entry",
        "pe.row",
        "loss.uniform",
        "modern.kept_bytes",
    }
    two = check("pe.entry@s2", 1.0)
    assert two.status == "ambiguous" and two.hint.startswith("One of these: ")


def test_an_edit_of_words_that_the_solution_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"the solution does not have 'ddof=0'"):
        Edit("x", "s", "ddof=0", "ddof=1").of("x = x.mean()")
