"""What the browser edition of the lessons cannot do: where a lesson's page shows it instead."""

import sys

IN_BROWSER = sys.platform == "emscripten"  # no threads, no processes, one slow core, no large files


def page_of(lesson: str) -> str:
    """The address of a lesson's page, results included, on the site that this browser edition belongs to.

    The edition is the folder lite/ of the site, the pages are in lessons/. Only to be called in a browser.
    """
    from js import location

    site, _, _ = str(location.href).partition("/lite/")
    return f"{site}/lessons/{lesson}.html"
