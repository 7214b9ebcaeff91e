"""Pages to print from a browser: an exam, a worksheet, the page on a class. One style, paper.css, for all."""

from html import escape

PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}
{sheet}
</style>
<body class="{kind}">
<main>
<h1>{title}</h1>
{body}
</main>
</html>
"""


def paper(kind: str, title: str, body: str, sheet: str) -> str:
    """A page of HTML that asks nobody for anything; `sheet` are its rules for the size of what is printed.

    >>> paper("exam", "A & B", "", "").count("A &amp; B")
    2
    """
    from importlib import resources

    style = resources.files("npformer.handouts").joinpath("paper.css").read_text(encoding="utf-8")
    return PAGE.format(kind=kind, title=escape(title), style=style.strip(), sheet=sheet, body=body)
