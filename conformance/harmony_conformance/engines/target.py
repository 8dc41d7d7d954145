"""What to test, as a connect string: `reference`, `reference:defect=ID`, `vllm:http://host:8000/v1`, `replay:exchanges.jsonl`, or a bare URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import urlsplit

from harmony_conformance.engines.profiles import ENGINES, Engine, engine_at

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
_PATH = re.compile(r"[!-~]*")
_ENDS = ("/chat/completions", "/completions", "/responses", "/models")
_RIGHT_URL = "http://host:port or https://host, with or without /v1"


class InvalidTargetError(ValueError):
    """A connect string that names nothing; says what would be right."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An engine and where it is: a base URL without `/v1`, or none for the embedded server, or a recording to judge again.

    `is_open`: only the URL was given, and which engine it is, is to be found out.
    """

    engine: Engine
    base: str | None = None
    defects: tuple[str, ...] = ()
    replay: PurePath | None = None
    is_open: bool = False

    @property
    def host(self) -> str:
        """Host and port, or what stands for them."""
        if self.replay is not None:
            return self.replay.name
        return urlsplit(self.base).netloc if self.base is not None else "embedded"

    @property
    def is_local(self) -> bool:
        """Whether requests stay on this machine."""
        return is_loopback(self.base)

    def __str__(self) -> str:
        """The connect string."""
        if self.replay is not None:
            return f"replay:{self.replay}"
        if self.base is None:
            return self.engine.name + "".join(f":defect={defect}" for defect in self.defects)
        return self.base if self.is_open else f"{self.engine.name}:{self.base}"


def is_loopback(url: str | None) -> bool:
    """Return whether a URL is of this machine; so is none at all."""
    return url is None or urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def parse_target(text: str) -> Target:
    """Read a connect string. A URL alone is a provider's by its host, or else of a server that is yet to be found out.

    Raises:
        BadTarget: it names no engine, or its URL is none.
    """
    text = text.strip()
    if text.startswith(("http://", "https://")):
        base = _base(text)
        known = engine_at((urlsplit(base).hostname or "").lower())
        return Target(engine=known or ENGINES["openai"], base=base, is_open=known is None)
    name, _, rest = text.partition(":")
    if name == "replay":
        if not rest:
            raise InvalidTargetError("replay: needs a file: replay:exchanges.jsonl")
        return Target(engine=ENGINES["openai"], replay=PurePath(rest))
    if name not in ENGINES:
        raise InvalidTargetError(
            f"{text!r} is no target: reference, a URL, or one of {', '.join(ENGINES)} and a URL (vllm:http://127.0.0.1:8000/v1)"
        )
    if name == "reference" and (not rest or rest.startswith("defect=")):
        defects = tuple(part.removeprefix("defect=") for part in rest.split(":") if part)
        return Target(engine=ENGINES[name], defects=tuple(defect for part in defects for defect in part.split(",")))
    if not rest:
        raise InvalidTargetError(f"{name} needs a URL: {name}:http://127.0.0.1:8000/v1")
    return Target(engine=ENGINES[name], base=_base(rest))


def _base(url: str) -> str:
    """The URL without a trailing `/v1`, and without a path of the API behind that.

    Raises:
        BadTarget: it is none, or holds more than an address.
    """
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InvalidTargetError("a URL with a password in it is not used: give the key by --api-key-env")
    try:
        split = urlsplit(url)
        host, port = split.hostname or "", split.port
    except ValueError:
        raise InvalidTargetError(f"{url!r} is no URL: {_RIGHT_URL}") from None
    if (
        split.scheme not in ("http", "https")
        or not _HOST.fullmatch(host)
        or port == 0
        or not _PATH.fullmatch(split.path)
    ):
        raise InvalidTargetError(f"{url!r} is no URL: {_RIGHT_URL}")
    if split.query or split.fragment:
        raise InvalidTargetError(f"a URL with a query is not used: {_RIGHT_URL}")
    path = split.path.rstrip("/")
    end = next((end for end in _ENDS if path.endswith(end)), "")
    path = path.removesuffix(end)
    if end and not path.endswith("/v1"):
        raise InvalidTargetError(f"{url!r} names one path of an API: give the URL up to /v1")
    path = path.removesuffix("/v1")
    return f"{split.scheme}://{split.netloc}{path}"
