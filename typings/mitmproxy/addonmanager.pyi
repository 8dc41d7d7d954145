from collections.abc import Sequence
from typing import Any

class Loader:
    # the type of an option may be generic, as Sequence[str]
    def add_option(
        self, name: str, typespec: Any, default: object, help: str, choices: Sequence[str] | None = None
    ) -> None: ...

class AddonManager:
    def get(self, name: str) -> object: ...
    def add(self, *addons: object) -> None: ...
