"""All tests: hypothesis has no deadlines, and the garbage collector leaves out what collection makes, which stays until the end of the session."""

import gc
from importlib.util import find_spec

if find_spec("hypothesis") is not None:  # some environments run few tests, and lack it
    from hypothesis import settings

    # how long one example takes says nothing on a busy machine
    settings.register_profile("unhurried", deadline=None)
    settings.load_profile("unhurried")


def pytest_collection() -> None:
    """Make the modules and items of a session without a search for garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Search for garbage in what the tests make."""
    gc.freeze()
    gc.enable()
