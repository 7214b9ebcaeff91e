"""What axe-core has against a page that Playwright shows: only what is serious or critical, and our own."""

from axe_playwright_python.sync_playwright import Axe


def objections(page, not_ours=()):
    """A line for each rule that is broken: how bad, which rule, where first, in how many places.

    not_ours: selectors of what others wrote, such as a theme's own parts.
    """
    context = {"include": [["html"]], "exclude": [[selector] for selector in not_ours]}
    options = {
        "resultTypes": ["violations"],
        "preload": False,
    }  # or it would ask for the style sheets once more
    found = Axe().run(page, context=context, options=options).response["violations"]
    bad = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    return [
        f"{rule['impact']}: {rule['help']}, {len(rule['nodes'])} times; first {rule['nodes'][0]['target']}"
        for rule in bad
    ]
