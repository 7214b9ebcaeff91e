"""Make the pages that contain the lesson plan: guesses.md, and two tables of notebooks/README.md."""

from npformer.handouts.slides import format_guess

HEAD = (
    "# Wrong guesses to expect, and what to ask\n\n"
    "For each **Predict.** of a lesson, this page has two wrong guesses. Each entry gives the guess, the "
    "misconception behind the guess, and a question that helps the student find the mistake. The entries are "
    "also in the speaker notes of the slides (`npformer slides`). The guesses come from the lessons and from "
    "known mistakes. We did not measure which guesses are the most frequent in a class.\n"
)
MINUTES_HEAD = "| lesson | section and **minutes** |\n|---|---|\n"
QUESTIONS_HEAD = "| lesson | question | answer |\n|---|---|---|\n"


def make_guesses_page(guesses, ids_of_lesson):
    """Return the text of guesses.md. `ids_of_lesson` is {number: ids of predictions} in their order."""
    parts = [HEAD]
    for lesson, ids in ids_of_lesson.items():
        lines = [f"- **{id}** {format_guess(guess)}" for id in ids for guess in guesses[id]]
        parts.append(f"\n## Lesson {lesson}\n\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def with_plan(text, plans):
    """Return notebooks/README.md with new tables of minutes and questions; `plans` is {number: plan}."""
    minutes, questions = [], []
    for number, plan in plans.items():
        row = ""
        for section, value in plan.minutes.items():
            between = " ‖ " if section == plan.break_after else " · "
            row += f"{section} **{value}**{between}"
        minutes.append(f"| {number:02} | {row.rstrip(' ·')} |\n")
        questions += [f"| {number} | {asked} | {answer} |\n" for asked, answer in plan.questions]
    return with_table(with_table(text, MINUTES_HEAD, minutes), QUESTIONS_HEAD, questions)


def with_table(text, head, rows):
    """Return the text with new rows in the table that has this head. The table ends at an empty line."""
    before, found, after = text.partition(head)
    assert found, f"there is no table with the head {head!r}"
    _, end, rest = after.partition("\n\n")
    return before + head + "".join(rows).rstrip("\n") + end + rest
