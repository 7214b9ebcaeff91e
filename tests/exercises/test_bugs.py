"""Find the bug: what is drawn is wrong in one line, and the mended text passes by the same engine."""

import pytest
from codings import CODE, check

from npformer import cli
from npformer.exercises import find_the_bug
from npformer.exercises.find_the_bug import bug_of
from npformer.exercises.task import compiled

NAMES = ("", *(f"name {i}" for i in range(30)))


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_the_drawn_line_is_wrong_and_the_mended_text_passes(task):
    for bug in {bug_of(task, name) for name in NAMES}:
        assert check(task.id, compiled(bug.text)).status in ("known_mistake", "ambiguous")
        assert check(task.id, compiled(bug.mended())).status == "pass"
        assert max(map(len, (bug.text + task.solution).splitlines())) <= 92, "an exam's page is not wider"


def test_names_get_other_bugs_and_one_name_always_the_same():
    drawn = [find_the_bug(f"block.forward@{name}") for name in NAMES]
    assert len({text.partition("import")[2] for text in drawn}) > 4
    assert len({find_the_bug(f"block.forward@{name}").split("import")[1] for name in ("ADA", "Ada")}) == 1


def test_the_text_as_it_was_says_nothing_of_its_line_and_the_mended_one_or_a_function_passes():
    asked, bug = "attention.forward@Ada", bug_of(next(t for t in CODE if t.id == "attention.forward"), "Ada")
    handed_out = find_the_bug(asked)
    told = find_the_bug(asked, f"{handed_out}  # looked at", level=3)
    assert (told.status, [finding.kind for finding in told.findings]) == ("unrecognised", ["unmended"])
    assert told.question and find_the_bug(asked, compiled(handed_out)).question is None
    assert find_the_bug(asked, bug.mended()) and find_the_bug(asked, compiled(bug.mended()))
    spoilt = find_the_bug(asked, bug.mended().replace("weights @ v", "-weights @ v"), level=2)
    assert spoilt.status == "unrecognised" and "opposite sign" in spoilt.evidence


def test_what_is_no_function_is_told():
    assert "SyntaxError" in find_the_bug("softmax.forward", "def softmax_forward(scores:").evidence
    assert "A function is asked for" in find_the_bug("softmax.forward", 3).evidence
    with pytest.raises(ValueError, match=r"pe\.entry asks for no function"):
        find_the_bug("pe.entry")


def test_the_command_prints_a_file_that_runs(capsys):
    assert cli.main(["show", "ffn.forward@Bo", "--bug"]) == 0
    assert capsys.readouterr().out == f"{find_the_bug('ffn.forward@Bo')}\n"
    assert callable(compiled(find_the_bug('ffn.forward@"a"\nname of two lines')))
