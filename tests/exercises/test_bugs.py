"""Tests of "find the bug": the drawn function is wrong in one line, and the corrected function passes."""

import pytest
from codings import CODE, check

from npformer import cli
from npformer.exercises import find_the_bug
from npformer.exercises.find_the_bug import draw_bug
from npformer.exercises.task import compile_function

NAMES = ("", *(f"name {i}" for i in range(30)))


ATTENTION = "attention.forward@Ada"


@pytest.fixture
def attention_bug():
    (task,) = [task for task in CODE if task.id == "attention.forward"]
    return draw_bug(task, "Ada")


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_every_bug_fails_and_its_correction_passes(task):
    for bug in {draw_bug(task, name) for name in NAMES}:
        assert check(task.id, compile_function(bug.text)).status in ("known_mistake", "ambiguous")
        assert check(task.id, compile_function(bug.mended())).status == "pass"
        assert max(map(len, (bug.text + task.solution).splitlines())) <= 92, "an exam's page is not wider"


def test_find_the_bug_draws_different_bugs_for_names():
    texts = [find_the_bug(f"block.forward@{name}") for name in NAMES]
    assert len({text.partition("import")[2] for text in texts}) > 4


def test_find_the_bug_ignores_case_of_names():
    texts = [find_the_bug(f"block.forward@{name}") for name in ("ADA", "Ada")]
    assert len({text.split("import")[1] for text in texts}) == 1


def test_find_the_bug_recognises_the_original_text():
    result = find_the_bug(ATTENTION, f"{find_the_bug(ATTENTION)}  # looked at", level=3)
    assert (result.status, [finding.kind for finding in result.findings]) == ("unrecognised", ["unmended"])
    assert result.question


def test_find_the_bug_asks_nothing_at_level_1():
    assert find_the_bug(ATTENTION, compile_function(find_the_bug(ATTENTION))).question is None


def test_find_the_bug_accepts_corrected_text_and_function(attention_bug):
    assert find_the_bug(ATTENTION, attention_bug.mended())
    assert find_the_bug(ATTENTION, compile_function(attention_bug.mended()))


def test_find_the_bug_describes_a_different_mistake(attention_bug):
    wrong = attention_bug.mended().replace("weights @ v", "-weights @ v")
    result = find_the_bug(ATTENTION, wrong, level=2)
    assert result.status == "unrecognised" and "opposite sign" in result.evidence


def test_find_the_bug_reports_syntax_errors():
    assert "SyntaxError" in find_the_bug("softmax.forward", "def softmax_forward(scores:").evidence


def test_find_the_bug_rejects_other_kinds_of_answers():
    assert "The task asks for a function" in find_the_bug("softmax.forward", 3).evidence


def test_find_the_bug_rejects_exercises_in_numbers():
    with pytest.raises(ValueError, match=r"pe\.entry asks for no function"):
        find_the_bug("pe.entry")


def test_show_bug_command_prints_a_running_file(capsys):
    assert cli.main(["show", "ffn.forward@Bo", "--bug"]) == 0
    assert capsys.readouterr().out == f"{find_the_bug('ffn.forward@Bo')}\n"
    assert callable(compile_function(find_the_bug('ffn.forward@"a"\nname of two lines')))
