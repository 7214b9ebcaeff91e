"""The grader starts processes by fork: where there is none, it says so, and these tests have nothing to ask."""

import os

collect_ignore_glob = [] if hasattr(os, "fork") else ["test_*.py"]
