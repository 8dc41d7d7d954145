"""The servers this project knows: how each spells things, shows its prompt, and can be scripted. A table; adding a server is adding a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType

from harmony_conformance.apis.api import CHAT

_SHOWN = "/render"
RENDER = f"{CHAT}{_SHOWN}"
"""Where vLLM shows the ids of a prompt."""
DERENDER = f"{CHAT}/derender"
"""Where vLLM makes a chat completion of the ids of an output."""

METRICS = "/metrics"
"""The path of what servers count of themselves."""


class ScriptMethod(StrEnum):
    """How the exact tokens of an answer travel to a server that can be scripted."""

    NONE = "none"
    REFERENCE = "reference"
    VLLM = "vllm"
    DERENDER = "derender"
    TELEPROMPTER = "teleprompter"

    @property
    def capabilities(self) -> ScriptCapabilities:
        """What it can do."""
        return _WAYS.get(self, ScriptCapabilities())


@dataclass(frozen=True, kw_only=True)
class ScriptCapabilities:
    """What a way of scripting can do.

    Attributes:
        go_past_stop: a script may go on behind a token that ends the turn.
        choose_chunks: the number of tokens in each event of a stream can be asked for.
        constrained_by: the members of a request that put a grammar on the sampler; a script that leaves the grammar is ended there, and fails.
    """

    go_past_stop: bool = False
    choose_chunks: bool = False
    constrained_by: frozenset[str] = frozenset()


_WAYS: Mapping[ScriptMethod, ScriptCapabilities] = MappingProxyType(
    {
        ScriptMethod.REFERENCE: ScriptCapabilities(go_past_stop=True, choose_chunks=True),
        ScriptMethod.DERENDER: ScriptCapabilities(go_past_stop=True, choose_chunks=True),
        ScriptMethod.VLLM: ScriptCapabilities(
            constrained_by=frozenset({"response_format", "tool_choice", "strict", "parallel_tool_calls"})
        ),
    }
)


@dataclass(frozen=True, kw_only=True)
class PromptEndpoint:
    """A way to be shown the prompt of a chat request without a generation.

    Attributes:
        path: where the request is sent.
        extra: a member that is added to it, true.
        ids: where in the answer the ids are, as a list of them or of objects with `id`; empty where there is text instead.
        text: where in the answer the text is, markers spelled. It proves structure, not how markers were tokenised.
    """

    path: str
    extra: str = ""
    ids: tuple[str, ...] = ()
    text: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called in a report: the path, or the member."""
        return self.extra or self.path


@dataclass(frozen=True, kw_only=True)
class PromptEcho:
    """What an answer holds of its own making, where it is asked to.

    Attributes:
        members: members of the request that ask for it, each true.
        prompt: where in the answer, or in a chunk of it, the text of the prompt is, markers spelled: no more than that of a `Side`.
    """

    members: tuple[str, ...]
    prompt: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called in a report."""
        return ".".join(self.prompt)


RENDERS = PromptEndpoint(path=RENDER, ids=("token_ids",))
"""The ids that vLLM feeds, or hands on to the server that generates."""


def renders_at(path: str) -> PromptEndpoint:
    """The same behind the path of another API."""
    return replace(RENDERS, path=f"{path}{_SHOWN}")


@dataclass(frozen=True, kw_only=True)
class LoadMetric:
    """Where a server tells how many requests it is working on: a path, and the name of a metric in the Prometheus text found there."""

    path: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One kind of server.

    `ids_field` asks a chat request for the ids of prompt and output, that of a stream only where `ids_in_streams`; `side` shows a prompt without
    generating, `reveals` with it; `counts` is what stands behind the path of an API where it says how many tokens a prompt has; `running` counts the
    requests it is working on, where metrics are switched on. All are probed before they are believed. `script_by` is only used on a server that
    identified itself, or on request. `reasoning_field` is the member in which messages of a history carry reasoning, where its answers do not show
    another. `paths` are those of APIs that it serves elsewhere than others do, by the API's name. `hosts` are the names of hosts, as patterns, at which
    nothing else answers: a provider's.
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
                load_metric=LoadMetric(path=METRICS, name="harmony_requests_running"),
            ),
            Engine(
                name="vllm",
                ids_field="return_token_ids",
                prompt_endpoint=RENDERS,
                script_method=ScriptMethod.VLLM,
                load_metric=LoadMetric(path=METRICS, name="vllm:num_requests_running"),
            ),
            Engine(
                name="ollama",
                prompt_endpoint=PromptEndpoint(
                    path=CHAT, extra="_debug_render_only", text=("_debug_info", "rendered_template")
                ),
            ),
            Engine(
                name="tgi",
                prompt_endpoint=PromptEndpoint(path="/chat_tokenize", ids=("tokenize_response",)),
                paths={"tgi": CHAT},
                load_metric=LoadMetric(path=METRICS, name="tgi_batch_current_size"),
            ),
            Engine(
                name="llamacpp",
                prompt_endpoint=PromptEndpoint(path="/apply-template", text=("prompt",)),
                prompt_echo=PromptEcho(members=("verbose", "return_tokens"), prompt=("__verbose", "prompt")),
                count_endpoint="/input_tokens",
                load_metric=LoadMetric(path=METRICS, name="llamacpp:requests_processing"),
                reasoning_field="reasoning_content",
            ),
            Engine(
                name="sglang",
                ids_field="return_token_ids",
                ids_in_streams=False,
                prompt_endpoint=PromptEndpoint(path="/v1/tokenize", ids=("tokens",)),
                load_metric=LoadMetric(path=METRICS, name="sglang:num_running_reqs"),
                reasoning_field="reasoning_content",
                paths={"sglang-generate": "/generate"},
            ),
            Engine(name="transformers", reasoning_field="reasoning_content"),
            Engine(name="openrouter", hosts=("openrouter.ai",)),
            Engine(name="groq", hosts=("api.groq.com",)),
            Engine(name="bedrock", hosts=("bedrock-*.amazonaws.com", "bedrock-*.api.aws")),
            Engine(name="openai"),
        )
    }
)


def engine_at(host: str) -> Engine | None:
    """The provider that a host is known to be, None for any other host."""
    return next((engine for engine in ENGINES.values() if any(fnmatchcase(host, one) for one in engine.hosts)), None)
