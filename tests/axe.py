"""Check the accessibility of pages with axe-core, and the types of JavaScript with TypeScript."""

import shutil
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe

TYPESCRIPT = "typescript@5.9.3"
CONTRAST = "color-contrast"  # Some tests skip this rule, because it takes four fifths of the time.
SERIOUS = ("serious", "critical")
ALL = ("minor", "moderate", "serious", "critical")


def objections(page, impacts=SERIOUS, *, not_ours=(), only=None, without=()):
    """Return one line per violated rule, with the impact, the number of violations and the first element.

    `not_ours` contains selectors of elements to skip, such as parts of a theme. `only` lists the rules
    to check, and `without` lists rules to skip.
    """
    context = {"include": [["html"]], "exclude": [[selector] for selector in not_ours]}
    options = {
        "resultTypes": ["violations"],
        "preload": False,  # With True, axe would load the style sheets again.
        "rules": {rule: {"enabled": False} for rule in without},
        **({"runOnly": only} if only else {}),
    }
    return [
        f"{rule['impact']}: {rule['help']}, {len(rule['nodes'])} times; first {rule['nodes'][0]['target']}"
        for rule in Axe().run(page, context=context, options=options).response["violations"]
        if rule["impact"] in impacts
    ]


def type_errors(script):
    """Return TypeScript's errors in a JavaScript module and its imports. JSDoc comments give the types."""
    npm = shutil.which("npm") or pytest.skip("needs npm")
    checks = "--noEmit --allowJs --checkJs --noUnusedLocals --target esnext --module esnext".split()
    modules = "--moduleResolution bundler --lib esnext,dom,dom.iterable".split()
    command = [npm, "exec", "--yes", f"--package={TYPESCRIPT}", "--", "tsc", *checks, *modules, script]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode and not run.stdout:
        pytest.skip(f"npm does not give {TYPESCRIPT}")
    return run.stdout.splitlines()
