"""All tests: the garbage collector leaves out what collection makes, which stays until the end of the session."""

import gc


def pytest_collection() -> None:
    """Make the modules and items of a session without a search for garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Search for garbage in what the tests make."""
    gc.freeze()
    gc.enable()
