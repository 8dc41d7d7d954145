"""`python -m harmony_proxy …`: the same as `harmony-conformance proxy …`."""

import sys

from harmony_conformance.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["proxy", *sys.argv[1:]]))
