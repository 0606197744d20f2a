"""`python -m dse` is the command `dse`."""

import sys

from dse.command.main import main

if __name__ == "__main__":
    sys.exit(main())
