"""harmony_ref.compat: the same API, hence the same tasks."""

from workloads import Inputs

from contenders import library
from harmony_ref import compat


def tasks(inputs: Inputs):
    return library.tasks(inputs, compat)
