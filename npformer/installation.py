"""The version of the installed package, and the commands that install its optional dependencies."""


def version() -> str:
    """Return the version of the installed package. In a clone without installation, read pyproject.toml.

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
    """Return the commands that install an extra, for an installed package and for a clone.

    >>> print(how_to_get("plots"))
    pip install "npformer[plots]" (in a clone: uv sync --extra plots)
    """
    return f'pip install "npformer[{extra}]" (in a clone: uv sync --extra {extra})'
