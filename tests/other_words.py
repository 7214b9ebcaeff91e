"""Replace the words of the checker's feedback, so that tests can show that no decision depends on them."""

import dataclasses
import re

from npformer.exercises import templates
from npformer.exercises.task import Mistake

CATALOG = templates.catalog()


def rewrite(value, change):
    """Return a part of the catalog with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [rewrite(part, change) for part in value]
    if isinstance(value, Mistake):
        texts = {name: change(getattr(value, name)) for name in ("sees", "cause", "question")}
        place = value.place._replace(read=change(value.place.read))
        sees_in = {exercise: change(text) for exercise, text in value.sees_in.items()}
        return dataclasses.replace(value, **texts, place=place, sees_in=sees_in)
    if isinstance(value, dict):
        return {key: rewrite(part, change) for key, part in value.items()}
    return value


def in_other_words(change):
    """Return the catalog of feedback with every text changed by a function."""
    return templates.Catalog(*(rewrite(part, change) for part in CATALOG))


def pseudo(text):
    """Return a text with accents and brackets, but with its placeholders, as in a pseudo-translation."""
    accents = str.maketrans("aeiouAEIOU", "åéîöüÅÉÎÖÜ")
    translated = []
    for part in re.split(r"(\{[^}]*\})", text):
        is_placeholder = part.startswith("{")
        translated.append(part if is_placeholder else part.translate(accents))
    return "⟦" + "".join(translated) + "⟧"
