"""Break a module in small ways, with cosmic-ray, and list the breaks that its tests let pass.

    uv run --with cosmic-ray python tests/mutation.py attention tests/test_attention.py
    uv run --with cosmic-ray python tests/mutation.py validation.rules tests/test_bad_input.py --sample 100

A seeded sample of the mutants that cosmic-ray makes runs against the tests that are named, in a copy of the
checkout. A mutant survives where they all pass; of those that are listed, some compute the same.
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

SECONDS = 300  # what takes longer counts as noticed
LEFT_OUT = "_BitOr_", "RemoveDecorator"  # types such as int | None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("module", help="such as attention or validation.rules")
    parser.add_argument("tests", nargs="+", help="files, the fastest to notice first")
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a mutant may have the time and the size of the one before
    command = f"{sys.executable} -m pytest -x -q -n 0 -p no:cacheprovider {' '.join(asked.tests)}"
    with tempfile.TemporaryDirectory() as top:
        left_behind = shutil.ignore_patterns(".git", ".venv", ".*_cache", "build")
        copy = shutil.copytree(Path(__file__).resolve().parents[1], Path(top) / "copy", ignore=left_behind)
        os.environ["PYTHONPATH"] = str(copy)  # for the processes that tests start
        os.chdir(copy)
        outcome, output = run_tests(command, SECONDS)
        if outcome is not TestOutcome.SURVIVED:
            sys.exit(f"these tests fail as it is:\n{output}")
        with use_db(str(Path(top) / "mutants.sqlite"), WorkDB.Mode.create) as db:
            init([Path("npformer", *asked.module.split(".")).with_suffix(".py")], db, {})
            every = [mutation for item in db.work_items for mutation in item.mutations]
        every = [each for each in every if not any(part in each.operator_name for part in LEFT_OUT)]
        chosen = random.Random(asked.seed).sample(every, min(asked.sample, len(every)))
        results = [mutate_and_test([each], command, SECONDS) for each in tqdm(chosen)]
    left = [each.diff for each in results if each.test_outcome is TestOutcome.SURVIVED]
    print(*left, f"{len(left)} of {len(chosen)} mutants survive, of {len(every)} possible", sep="\n")
    return len(left) > 0


if __name__ == "__main__":
    sys.exit(main())
