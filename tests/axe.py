"""What axe-core has against a page in a browser, and TypeScript against a page's JavaScript."""

import shutil
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe

TYPESCRIPT = "typescript@5.9.3"
CONTRAST = "color-contrast"  # four fifths of the time
SERIOUS, ALL = ("serious", "critical"), ("minor", "moderate", "serious", "critical")


def objections(page, impacts=SERIOUS, *, not_ours=(), only=None, without=()):
    """A line for each rule that is broken: how bad, which, how often, where first.

    not_ours: selectors of what others wrote, such as a theme's own parts; `only`, `without`: axe's rules.
    """
    context = {"include": [["html"]], "exclude": [[selector] for selector in not_ours]}
    options = {
        "resultTypes": ["violations"],
        "preload": False,  # or it would ask for the style sheets once more
        "rules": {rule: {"enabled": False} for rule in without},
        **({"runOnly": only} if only else {}),
    }
    return [
        f"{rule['impact']}: {rule['help']}, {len(rule['nodes'])} times; first {rule['nodes'][0]['target']}"
        for rule in Axe().run(page, context=context, options=options).response["violations"]
        if rule["impact"] in impacts
    ]


def type_errors(script):
    """What TypeScript says about a module and those that it imports; their types stand in JSDoc comments."""
    npm = shutil.which("npm") or pytest.skip("needs npm")
    look = "--noEmit --allowJs --checkJs --noUnusedLocals --target esnext --module esnext".split()
    where = "--moduleResolution bundler --lib esnext,dom,dom.iterable".split()
    command = [npm, "exec", "--yes", f"--package={TYPESCRIPT}", "--", "tsc", *look, *where, script]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode and not run.stdout:
        pytest.skip(f"npm does not give {TYPESCRIPT}")
    return run.stdout.splitlines()
