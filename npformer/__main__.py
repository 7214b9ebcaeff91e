"""`python -m npformer` is the command `npformer`."""

import sys

from npformer.cli import main

sys.exit(main())
