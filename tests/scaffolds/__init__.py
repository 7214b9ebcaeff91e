"""Create the files for `tests/new.py operation|exercise|section`, with marks for missing text or code."""
