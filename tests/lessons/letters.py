"""Find the size of every text in a figure, and the texts that are cut off or overlap.

If the environment variable NOTE_LETTERS names a file, a kernel that runs this module at startup appends the
texts of every picture of the notebook to that file.
"""

import base64
import json
import os
import re
from unittest.mock import patch

from matplotlib.text import Text

from npformer.lessons.plots import style

INDEX = 0.7  # matplotlib's font size of subscripts and superscripts, relative to the text


def letters(figure):
    """Return (text, font size of its smallest letters in points) for every visible text of the figure."""
    drawn = []
    original_draw = Text.draw

    def draw(text, *rest):
        drawn.append(text)
        return original_draw(text, *rest)

    with patch.object(Text, "draw", draw):
        style.in_style(figure.draw_without_rendering)()  # in STYLE, ticks are as in the saved picture
    without_repeats = dict.fromkeys(drawn)
    visible = [text for text in without_repeats if text.get_visible() and text.get_text().strip()]
    return [(text, text.get_fontsize() * (INDEX if has_index(text) else 1)) for text in visible]


def has_index(text):
    return bool(re.search(r"\$.*[_^].*\$", text.get_text()))


def troubles(figure, written):
    """Return messages about texts that are cut off or overlap.

    `written` is the result of `letters`. Only horizontal and vertical texts are checked.
    """
    upright = [text for text, _ in written if text.get_rotation() % 90 == 0]
    boxes = [(text.get_text(), text.get_window_extent()) for text in upright]
    width, height = figure.bbox.size
    messages = []
    for i, (words, box) in enumerate(boxes):
        if min(box.x0, box.y0, width - box.x1, height - box.y1) < -2:
            messages.append(f"{words!r} is cut off")
        for other_words, other in boxes[:i]:
            overlap_x = min(box.x1, other.x1) - max(box.x0, other.x0)
            overlap_y = min(box.y1, other.y1) - max(box.y0, other.y0)
            if overlap_x > 2 and overlap_y > 6:  # small overlaps do no harm: letters do not fill boxes
                messages.append(f"{words!r} over {other_words!r}")
    return messages


def note_letters(file):
    """Append one line to the file for each picture that is drawn from now on.

    The line has the last 40 characters of the encoded picture, its texts with their sizes, and the messages
    of `troubles`.
    """
    original_encoded = style.encoded

    def encode_and_note(figure, kind="png"):
        data = original_encoded(figure, kind)
        written = letters(figure)
        sizes = [(text.get_text(), points) for text, points in written]
        end = base64.b64encode(data).decode()[-40:]
        line = {"end": end, "letters": sizes, "troubles": troubles(figure, written)}
        with open(file, "a", encoding="utf-8") as notes:
            notes.write(json.dumps(line) + "\n")
        return data

    style.encoded = encode_and_note


if "NOTE_LETTERS" in os.environ:
    note_letters(os.environ["NOTE_LETTERS"])
