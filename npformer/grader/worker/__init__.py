"""The student's process: it runs as `python -P -m worker`, outside the package npformer.

The parent directory of this package is on PYTHONPATH, so its name here is `worker` and not
`npformer.grader.worker`. A submission runs in this process and can read all of its memory, so the process
must not contain the correct answers. Therefore these modules import only each other, the standard library and
NumPy. The rest of the grader imports `protocol` and `student_module` from here.
"""
