import warnings
from dataclasses import dataclass
from types import ModuleType

import pytest

from harmony_ref import compat


@dataclass(frozen=True)
class Api:
    """A module under test and its encoding."""

    module: ModuleType
    encoding: object

    def __getattr__(self, name):
        return getattr(self.module, name)

    def answer(self, function):
        """What the function returns for this API, or the class and the text of what it raises."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                answer = function(self)
                # pydantic's are of this class; those of the interpreter come when it likes
                of_pydantic = {str(warning.message) for warning in told if issubclass(warning.category, UserWarning)}
                return {"ok": answer, "warnings": len(of_pydantic)}
            except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
                return {"error": type(error).__name__, "text": str(error)}


@pytest.fixture(scope="session")
def official(oracle):
    openai_harmony = pytest.importorskip("openai_harmony")
    return Api(openai_harmony, openai_harmony.HarmonyEncoding(oracle.inner))


@pytest.fixture(scope="session")
def ours():
    return Api(compat, compat.load_harmony_encoding("HarmonyGptOss"))


@pytest.fixture(params=["openai_harmony", "harmony_ref.compat"])
def api(request):
    """Each of the two APIs, so that what a test says is shown to be so of the original as well."""
    return request.getfixturevalue("official" if request.param == "openai_harmony" else "ours")
