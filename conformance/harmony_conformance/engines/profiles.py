"""Table of the supported engines: request members, prompt endpoints and script methods. A new engine is a new row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType

from harmony_conformance.apis.api import CHAT_PATH

_RENDER_SUFFIX = "/render"
RENDER_PATH = f"{CHAT_PATH}{_RENDER_SUFFIX}"
"""Path at which vLLM returns the ids of a prompt."""
DERENDER_PATH = f"{CHAT_PATH}/derender"
"""Path at which vLLM converts output ids to a chat completion."""

METRICS_PATH = "/metrics"
"""Path of a server's Prometheus metrics."""


class ScriptMethod(StrEnum):
    """Method that sends the exact output tokens to a server that plays scripts."""

    NONE = "none"
    REFERENCE = "reference"
    VLLM = "vllm"
    DERENDER = "derender"
    TELEPROMPTER = "teleprompter"

    @property
    def capabilities(self) -> ScriptCapabilities:
        """Capabilities of the method."""
        return _CAPABILITIES.get(self, ScriptCapabilities())


@dataclass(frozen=True, kw_only=True)
class ScriptCapabilities:
    """Capabilities of a script method.

    Attributes:
        can_ignore_stop: True if a script may continue after a token that ends the turn.
        can_choose_event_size: True if a request can set the number of tokens in each event of a stream.
        grammar_members: Request members that put a grammar on the sampler. A script that leaves the grammar ends there.
    """

    can_ignore_stop: bool = False
    can_choose_event_size: bool = False
    grammar_members: frozenset[str] = frozenset()


_CAPABILITIES: Mapping[ScriptMethod, ScriptCapabilities] = MappingProxyType(
    {
        ScriptMethod.REFERENCE: ScriptCapabilities(can_ignore_stop=True, can_choose_event_size=True),
        ScriptMethod.DERENDER: ScriptCapabilities(can_ignore_stop=True, can_choose_event_size=True),
        ScriptMethod.VLLM: ScriptCapabilities(
            grammar_members=frozenset({"response_format", "tool_choice", "strict", "parallel_tool_calls"})
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class PromptEndpoint:
    """Endpoint that shows the prompt of a chat request without generating.

    Attributes:
        extra: Member added to the request, with the value true.
        ids_path: Path of the ids in the response, a list of numbers or of objects with `id`; empty if it returns text.
        text_path: Path of the text in the response, with markers as text. It proves structure, not the tokens of markers.
    """

    path: str
    extra: str = ""
    ids_path: tuple[str, ...] = ()
    text_path: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name in reports: the added member, else the path."""
        return self.extra or self.path


@dataclass(frozen=True, kw_only=True)
class PromptEcho:
    """Request members that make a response repeat its prompt.

    Attributes:
        members: Members added to the request, each with the value true.
        text_path: Path of the prompt text in the response or in a chunk. It proves as little as `PromptEndpoint.text_path`.
    """

    members: tuple[str, ...]
    text_path: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name in reports."""
        return ".".join(self.text_path)


RENDER_ENDPOINT = PromptEndpoint(path=RENDER_PATH, ids_path=("token_ids",))
"""The prompt endpoint of vLLM: the ids that it feeds to the model or sends to the generating server."""


def render_endpoint(path: str) -> PromptEndpoint:
    """Return vLLM's prompt endpoint for the path of an API."""
    return replace(RENDER_ENDPOINT, path=f"{path}{_RENDER_SUFFIX}")


@dataclass(frozen=True, kw_only=True)
class LoadMetric:
    """Path and name of the Prometheus metric that counts running requests."""

    path: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Profile of an engine or provider. Every capability is probed before it is used.

    Attributes:
        ids_field: Request member that adds prompt and output ids to the response; in streams only if `ids_in_streams`.
        count_endpoint: Suffix of an API's path that counts prompt tokens.
        script_method: Method used if the server identified itself or the user requested scripts.
        load_metric: Metric of running requests, present if metrics are enabled.
        reasoning_field: Member of history messages with reasoning, unless responses show another.
        paths: Paths of APIs at non-standard places, by the name of the API.
        hosts: Host name patterns that only this provider uses.
    """

    name: str
    ids_field: str | None = None
    ids_in_streams: bool = True
    prompt_endpoint: PromptEndpoint | None = None
    prompt_echo: PromptEcho | None = None
    count_endpoint: str | None = None
    script_method: ScriptMethod = ScriptMethod.NONE
    load_metric: LoadMetric | None = None
    reasoning_field: str = "reasoning"
    paths: Mapping[str, str] = field(default_factory=dict[str, str])
    hosts: tuple[str, ...] = ()


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine(
                name="reference",
                ids_field="return_token_ids",
                script_method=ScriptMethod.REFERENCE,
                load_metric=LoadMetric(path=METRICS_PATH, name="harmony_requests_running"),
            ),
            Engine(
                name="vllm",
                ids_field="return_token_ids",
                prompt_endpoint=RENDER_ENDPOINT,
                script_method=ScriptMethod.VLLM,
                load_metric=LoadMetric(path=METRICS_PATH, name="vllm:num_requests_running"),
            ),
            Engine(
                name="ollama",
                prompt_endpoint=PromptEndpoint(
                    path=CHAT_PATH, extra="_debug_render_only", text_path=("_debug_info", "rendered_template")
                ),
            ),
            Engine(
                name="tgi",
                prompt_endpoint=PromptEndpoint(path="/chat_tokenize", ids_path=("tokenize_response",)),
                paths={"tgi": CHAT_PATH},
                load_metric=LoadMetric(path=METRICS_PATH, name="tgi_batch_current_size"),
            ),
            Engine(
                name="llamacpp",
                prompt_endpoint=PromptEndpoint(path="/apply-template", text_path=("prompt",)),
                prompt_echo=PromptEcho(members=("verbose", "return_tokens"), text_path=("__verbose", "prompt")),
                count_endpoint="/input_tokens",
                load_metric=LoadMetric(path=METRICS_PATH, name="llamacpp:requests_processing"),
                reasoning_field="reasoning_content",
            ),
            Engine(
                name="sglang",
                ids_field="return_token_ids",
                ids_in_streams=False,
                prompt_endpoint=PromptEndpoint(path="/v1/tokenize", ids_path=("tokens",)),
                load_metric=LoadMetric(path=METRICS_PATH, name="sglang:num_running_reqs"),
                reasoning_field="reasoning_content",
                paths={"sglang-generate": "/generate"},
            ),
            Engine(name="transformers", reasoning_field="reasoning_content"),
            Engine(
                name="litellm",
                prompt_endpoint=RENDER_ENDPOINT,  # of the relay in engines/litellm
                load_metric=LoadMetric(path=METRICS_PATH, name="harmony_requests_running"),
                reasoning_field="reasoning_content",
            ),
            Engine(name="openrouter", hosts=("openrouter.ai",)),
            Engine(name="groq", hosts=("api.groq.com",)),
            Engine(name="bedrock", hosts=("bedrock-*.amazonaws.com", "bedrock-*.api.aws")),
            Engine(name="openai"),
        )
    }
)


def engine_for_host(host: str) -> Engine | None:
    """Return the provider of a host, None if unknown."""
    return next((engine for engine in ENGINES.values() if any(fnmatchcase(host, one) for one in engine.hosts)), None)
