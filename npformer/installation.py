"""What the package says of itself where it is installed: its version, and how to get what a call misses."""


def version() -> str:
    """The version that is installed; in a clone that is not installed, the one that pyproject.toml names.

    >>> version().count(".")
    2
    """
    from importlib import metadata

    try:
        return metadata.version("npformer")
    except metadata.PackageNotFoundError:
        import tomllib
        from pathlib import Path

        text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])


def how_to_get(extra: str) -> str:
    """What to type for an extra of the package, which may be installed or a clone.

    >>> print(how_to_get("plots"))
    pip install "npformer[plots]" (in a clone: uv sync --extra plots)
    """
    return f'pip install "npformer[{extra}]" (in a clone: uv sync --extra {extra})'
