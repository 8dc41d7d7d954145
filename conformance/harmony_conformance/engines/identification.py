"""Who answers at a URL: what a server says of itself at the paths where servers do so. Asked one after another, until one of them is known by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harmony_conformance.engines.diagnosis import (
    MODELS,
    REFUSED_KEY,
    EndpointUnusableError,
    KeyRefusedError,
    is_redirect,
    json_of,
    no_model,
    rate_limited,
    redirect,
)
from harmony_conformance.engines.profiles import ENGINES, Engine
from harmony_conformance.json_value import Json, at, items, text
from harmony_conformance.transport.client import SendRequest
from harmony_conformance.transport.messages import Request, Response

_VERSION = "/version"


@dataclass(frozen=True, kw_only=True)
class EngineSignature:
    """What tells a server: something in the answer to a GET.

    Attributes:
        holds: whether it is there.
        about: what it is, in words.
        version: where in the answer the version is; empty where it is not told there.
    """

    engine: str
    path: str
    holds: Callable[[Response, Json], bool]
    about: str
    version: tuple[str, ...] = ()


def _owned_by(owner: str) -> Callable[[Response, Json], bool]:
    return lambda _, body: any(at(model, "owned_by") == owner for model in items(at(body, "data")))


def _server(name: str) -> Callable[[Response, Json], bool]:
    return lambda response, _: response.headers.get("server", "").lower().startswith(name)


def _has(*names: str) -> Callable[[Response, Json], bool]:
    return lambda response, body: response.is_success and all(at(body, name) is not None for name in names)


SIGNS: tuple[EngineSignature, ...] = (
    EngineSignature(engine="reference", path=MODELS, holds=_server("harmony-conformance"), about="the header `server`"),
    EngineSignature(engine="llamacpp", path=MODELS, holds=_server("llama.cpp"), about="the header `server`"),
    EngineSignature(engine="vllm", path=MODELS, holds=_owned_by("vllm"), about="`owned_by`"),
    EngineSignature(engine="sglang", path=MODELS, holds=_owned_by("sglang"), about="`owned_by`"),
    EngineSignature(engine="llamacpp", path=MODELS, holds=_owned_by("llamacpp"), about="`owned_by`"),
    EngineSignature(
        engine="tgi",
        path="/info",
        holds=lambda _, body: at(body, "router") == "text-generation-router",
        about="`router`",
        version=("version",),
    ),
    EngineSignature(
        engine="ollama", path="/", holds=lambda response, _: b"Ollama is running" in response.body, about="the greeting"
    ),
    EngineSignature(
        engine="ollama", path="/api/version", holds=_has("version"), about="`version`", version=("version",)
    ),
    EngineSignature(
        engine="llamacpp",
        path="/props",
        holds=_has("default_generation_settings"),
        about="`default_generation_settings`",
        version=("build_info",),
    ),
    EngineSignature(
        engine="sglang",
        path="/server_info",
        holds=_has("tp_size", "mem_fraction_static"),
        about="`mem_fraction_static`",
        version=("version",),
    ),
)
"""In the order in which they are looked for: what one answer shows first, what is the server's alone before what others have taken over from it."""

VERSIONS = {"tgi": "/info", "ollama": "/api/version", "llamacpp": "/props", "sglang": "/server_info"}
"""Where an engine tells its version, if not at `/version`."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a server says of itself: the models it lists, its version, what it is known to be, and by which signs.

    `is_reference`: it says that it is the reference server, and may be given scripts.
    """

    models: list[str]
    version: str | None
    is_reference: bool
    engine: Engine | None = None
    signatures: tuple[str, ...] = ()


async def identify(send: SendRequest, named: str | None, engine: Engine, *, is_open: bool) -> Identity:
    """Ask a server what it is. `named`: the model, where the user named one; `is_open`: whether it is to be found out which engine it is.

    Raises:
        NothingThere: there is no HTTP answer, the key is refused, or no model is listed and none named.
    """
    listed = await send(Request(method="GET", path=MODELS, body=b""))
    if listed.response is None:
        raise EndpointUnusableError(
            f"no HTTP answer: {listed.failure.detail if listed.failure else 'nothing came back'}"
        )
    if listed.response.status in REFUSED_KEY:
        raise KeyRefusedError(listed.response.status)
    if is_redirect(listed.response):
        raise EndpointUnusableError(redirect(listed.response))
    if limited := rate_limited(listed.failure, listed.response):
        raise EndpointUnusableError(limited)
    ids = (text(at(model, "id")) for model in items(at(json_of(listed.response), "data")))
    models = [name for name in ids if name]
    if not models and not named and listed.failure is not None:
        raise EndpointUnusableError(f"the answer to GET {MODELS} broke off: {listed.failure.detail}")
    if not models and not named:
        raise EndpointUnusableError(no_model(listed.response))
    answers = {MODELS: listed.response}
    found = await _first_sign(send, answers) if is_open else None
    known = ENGINES[found.engine] if found is not None else engine
    return Identity(
        models=models,
        version=await _version(send, known, answers),
        is_reference=SIGNS[0].holds(listed.response, None),
        engine=known if found is not None else None,
        signatures=(f"{found.about} at {found.path}",) if found is not None else (),
    )


async def _first_sign(send: SendRequest, answers: dict[str, Response]) -> EngineSignature | None:
    for sign in SIGNS:
        response = await _answer(send, sign.path, answers)
        if response is not None and sign.holds(response, json_of(response)):
            return sign
    return None


async def _version(send: SendRequest, engine: Engine, answers: dict[str, Response]) -> str | None:
    for path in dict.fromkeys((VERSIONS.get(engine.name, _VERSION), _VERSION)):
        response = await _answer(send, path, answers)
        body = json_of(response) if response is not None else None
        places = [sign.version for sign in SIGNS if sign.path == path and sign.version]
        if version := next((text(at(body, *place)) for place in [*places, ("version",)] if text(at(body, *place))), ""):
            return version
    return None


async def _answer(send: SendRequest, path: str, answers: dict[str, Response]) -> Response | None:
    """What a path answers, asked once."""
    if path not in answers:
        sent = await send(Request(method="GET", path=path, body=b""))
        if sent.response is None:
            return None
        answers[path] = sent.response
    return answers[path]
