"""Create the files of `tests/new.py operation|exercise|section`, with marks for missing text or code."""
