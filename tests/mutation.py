"""Change a module in small ways with cosmic-ray, and list the changes that tests do not detect.

    uv run --with cosmic-ray python tests/mutation.py attention tests/test_attention.py
    uv run --with cosmic-ray python tests/mutation.py validation.rules tests/test_bad_input.py --sample 100

cosmic-ray makes the changed modules, called mutants. The script runs the given tests for a random sample of
the mutants, in a copy of the checkout. A mutant survives if all tests pass. Some survivors compute the
same result as the original module.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome
from tqdm import tqdm

SECONDS = 300  # If the tests of a mutant take longer, the mutant counts as detected.
EXCLUDED_OPERATORS = "_BitOr_", "RemoveDecorator"  # BitOr also occurs in types such as int | None.


def main() -> int:
    """Run the mutants, print the survivors, and return 1 if there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("module", help="such as attention or validation.rules")
    parser.add_argument("tests", nargs="+", help="files, the fastest to detect a mutant first")
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # so that no mutant uses the .pyc of another mutant
    command = f"{sys.executable} -m pytest -x -q -n 0 -p no:cacheprovider {' '.join(options.tests)}"
    with tempfile.TemporaryDirectory() as top:
        not_copied = shutil.ignore_patterns(".git", ".venv", ".*_cache", "build")
        copy = shutil.copytree(Path(__file__).resolve().parents[1], Path(top) / "copy", ignore=not_copied)
        os.environ["PYTHONPATH"] = str(copy)  # so that processes started by a test import the copy
        os.chdir(copy)
        outcome, output = run_tests(command, SECONDS)
        if outcome is not TestOutcome.SURVIVED:
            sys.exit(f"these tests fail as it is:\n{output}")
        with use_db(str(Path(top) / "mutants.sqlite"), WorkDB.Mode.create) as db:
            init([Path("npformer", *options.module.split(".")).with_suffix(".py")], db, {})
            mutations = [mutation for item in db.work_items for mutation in item.mutations]
        mutations = [mutation for mutation in mutations if not is_excluded(mutation)]
        sample_size = min(options.sample, len(mutations))
        chosen = random.Random(options.seed).sample(mutations, sample_size)
        results = [mutate_and_test([mutation], command, SECONDS) for mutation in tqdm(chosen)]
    survivors = [result.diff for result in results if result.test_outcome is TestOutcome.SURVIVED]
    counts = f"{len(survivors)} of {len(chosen)} mutants survive, of {len(mutations)} possible"
    print(*survivors, counts, sep="\n")
    return len(survivors) > 0


def is_excluded(mutation) -> bool:
    """Return whether the name of a mutation's operator contains an entry of EXCLUDED_OPERATORS."""
    return any(part in mutation.operator_name for part in EXCLUDED_OPERATORS)


if __name__ == "__main__":
    sys.exit(main())
