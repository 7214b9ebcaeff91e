"""`python -m npformer` is the command `npformer`."""

import os
import sys

if sys.path[:1] == [os.getcwd()] and not os.path.samefile(os.path.dirname(os.path.dirname(__file__)), "."):
    del sys.path[0]  # -m looks for modules where we are: in a folder of submissions, numpy.py is no NumPy

from npformer.cli import main  # after the folder has left the path

sys.exit(main())
