"""Serve a submission (see the docstring of the package)."""

if __name__ == "__main__":
    from .server import serve

    serve()
