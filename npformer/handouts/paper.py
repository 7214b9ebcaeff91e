"""Make HTML pages for printing. Exams, worksheets and the class report share the style sheet paper.css."""

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


def make_page(kind: str, title: str, body: str, sheet: str) -> str:
    """Make an HTML page that loads nothing from the network.

    Parameters
    ----------
    kind : str
        The CSS class of the page, such as "exam" or "worksheet". The file paper.css defines these classes.
    title : str
        The title as plain text.
    body : str
        The content below the title, as HTML.
    sheet : str
        CSS rules for the size of the printed sheet.

    Returns
    -------
    page : str

    Examples
    --------
    >>> make_page("exam", "A & B", "", "").count("A &amp; B")
    2
    """
    from importlib import resources

    style = resources.files("npformer.handouts").joinpath("paper.css").read_text(encoding="utf-8")
    return PAGE.format(kind=kind, title=escape(title), style=style.strip(), sheet=sheet, body=body)
