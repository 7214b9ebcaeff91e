"""What `tests/new.py operation|exercise|section` writes, with marks where text or code is missing."""
