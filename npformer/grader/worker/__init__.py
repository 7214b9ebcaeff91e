"""The student's process: `python -P -m worker`, with the parent directory of this package on PYTHONPATH.

A submission runs in this process, so the process contains no answers: these modules import each other, the
standard library and NumPy, and nothing else of npformer. The grading process imports `protocol` from here.
"""
