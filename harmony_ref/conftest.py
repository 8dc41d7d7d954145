"""Makes `import harmony_ref` mean the package in every test."""

import sys

# This folder has the package's name. Under --import-mode=importlib pytest names modules by their path from the root,
# and puts the folder into sys.modules as a namespace package unless the real one is already there.
if getattr(sys.modules.get("harmony_ref"), "__file__", None) is None:
    sys.modules.pop("harmony_ref", None)
    import harmony_ref  # noqa: F401
