"""Run the tests of the mathematical functions in Pyodide, which is 32-bit WebAssembly.

The project is mounted at /mnt. The last line of this script evaluates to pytest's exit code. pytest lists
every skipped test with its reason.
"""

import os
import sys

import pytest

FILES = """
test_functional.py test_positional.py test_embedding.py test_layer_norm.py test_feed_forward.py
test_attention.py test_loss.py test_encoder.py test_decoder.py test_transformer.py test_optim.py
test_gradcheck.py test_tree.py test_bad_input.py test_properties.py exercises/test_checker.py
"""
# Leave out two tests that need threads or processes, which WebAssembly does not have.
HERE = "not save_from_many_threads_is_atomic and not save_removes_temporary_file_of_killed_save"

sys.dont_write_bytecode = True
os.chdir("/mnt")
arguments = [
    "-o",
    "addopts=",
    "--strict-markers",
    "-q",
    "-rsfE",
    "-p",
    "no:cacheprovider",
    "--durations=5",
    "-k",
    HERE,
]
arguments += ["--capture=sys"]  # the default captures file descriptors, which WebAssembly lacks
files = (os.environ.get("NPFORMER_TESTS") or FILES).split()
int(pytest.main([*arguments, *(f"tests/{name}" for name in files)]))
