"""Run the command `npformer` as `python -m npformer`."""

import sys

from npformer.cli import main

sys.exit(main())
