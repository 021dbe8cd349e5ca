"""`python -m bushel`: the same as the `bushel` command."""

import sys

from bushel.cli import main

sys.exit(main())
