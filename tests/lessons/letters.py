"""The letters of a figure: what is written, how large, and what is cut or written over something else.

As a start file of a notebook's kernel it notes them for every picture that the notebook shows.
"""

import base64
import json
import os
import re

from matplotlib.text import Text

from npformer.lessons.plots import style

INDEX = 0.7  # how large matplotlib writes an index, of the letters beside it


def letters(figure):
    """Every text that is drawn, and its smallest letters in points."""
    drawn = []
    with_note = Text.draw

    def draw(text, *rest):
        drawn.append(text)
        return with_note(text, *rest)

    Text.draw = draw
    try:
        style.in_style(figure.draw_without_rendering)()  # with as many ticks as in its file
    finally:
        Text.draw = with_note
    written = [text for text in dict.fromkeys(drawn) if text.get_visible() and text.get_text().strip()]
    return [(text, text.get_fontsize() * (INDEX if has_index(text) else 1)) for text in written]


def has_index(text):
    return bool(re.search(r"\$.*[_^].*\$", text.get_text()))


def troubles(figure, written):
    """What is cut off or written over something else, of `letters`; slanting texts are not looked at."""
    upright = [text for text, _ in written if text.get_rotation() % 90 == 0]
    boxes = [(text.get_text(), text.get_window_extent()) for text in upright]
    (width, height), found = figure.bbox.size, []
    for i, (words, box) in enumerate(boxes):
        if min(box.x0, box.y0, width - box.x1, height - box.y1) < -2:
            found.append(f"{words!r} is cut off")
        for others, other in boxes[:i]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            down = min(box.y1, other.y1) - max(box.y0, other.y0)
            if across > 2 and down > 6:  # a box has room for letters that hang down and for high ones
                found.append(f"{words!r} over {others!r}")
    return found


def note_letters(file):
    """Add a line to the file for each picture from now on: the end of its bytes, its letters and troubles."""
    encoded = style.encoded

    def noted(figure, kind="png"):
        data = encoded(figure, kind)
        written = letters(figure)
        sizes = [(text.get_text(), points) for text, points in written]
        end = base64.b64encode(data).decode()[-40:]
        line = {"end": end, "letters": sizes, "troubles": troubles(figure, written)}
        with open(file, "a", encoding="utf-8") as notes:
            notes.write(json.dumps(line) + "\n")
        return data

    style.encoded = noted


if "NOTE_LETTERS" in os.environ:
    note_letters(os.environ["NOTE_LETTERS"])
