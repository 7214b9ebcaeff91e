"""Start of the student's process; see the package."""

if __name__ == "__main__":
    from .server import serve

    serve()
