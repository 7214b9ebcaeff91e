"""Read what browsers printed: the text and the number of pictures of each page of a PDF."""

import io
import unicodedata
from collections import Counter
from typing import NamedTuple

import pytest
from browsers import FIREFOX

needs_firefox = pytest.mark.skipif(not FIREFOX, reason="needs Firefox: apt-get install firefox-esr")
A4 = {"width": 21.0, "height": 29.7}  # in centimetres


class Page(NamedTuple):
    """One printed page."""

    text: str
    n_pictures: int


def read_pages(pdf: bytes) -> list[Page]:
    """Return the pages of a PDF, with plain letters instead of ligatures and mathematical letters."""
    pypdf = pytest.importorskip("pypdf")
    pages = pypdf.PdfReader(io.BytesIO(pdf)).pages
    return [Page(unicodedata.normalize("NFKC", page.extract_text()), len(page.images)) for page in pages]


def count_letters(text: str) -> Counter[str]:
    """Count each letter and digit. The order is ignored, because browsers print words in different orders."""
    return Counter(letter for letter in text if letter.isalnum())
