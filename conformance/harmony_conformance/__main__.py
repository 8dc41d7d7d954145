"""`python -m harmony_conformance`: the command line, where its script is not on the path."""

import sys

from harmony_conformance.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
