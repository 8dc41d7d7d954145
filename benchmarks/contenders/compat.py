"""harmony_ref.compat: the same API, hence the same tasks."""

from harmony_ref import compat

from contenders import library
from workloads import Inputs


def tasks(inputs: Inputs):
    return library.tasks(inputs, compat)
