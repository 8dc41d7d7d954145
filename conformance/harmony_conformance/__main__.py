"""The command-line interface as `python -m harmony_conformance`."""

import sys

from harmony_conformance.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
