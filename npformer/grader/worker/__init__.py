"""The student's process, which runs as `python -P -m worker`, outside the package npformer.

The parent directory of this package is on PYTHONPATH, so in this process the package is called `worker` and
not `npformer.grader.worker`. A submission runs in this process and can read all its memory. So the correct
answers must not be in this memory. For this reason these modules import only each other, the standard library
and NumPy. The rest of the grader imports `protocol` and `student_module` from here.
"""
