"""Latency of an endpoint, measured by a separate probe after the checks, never by their requests.

Equal streamed requests are sent one at a time, then the same number concurrently. Times are those at which the client received an event, in seconds
after it sent the request. All figures can be computed again from the recorded exchanges.

    ttft                  first token of any channel: the first event with reasoning, content or a call
    time_to_first_answer  first event with content or a call: the wait of a user
    inter_event_gap       between two such events, over all requests
    itl                   between two tokens, if the tokens of each event are known (`Timing.token_gaps`)
    tpot                  (end - first token) / (completion tokens - 1)
    end_to_end            the event with the `finish_reason`
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from harmony_conformance.engines.profiles import Engine, ScriptMethod
from harmony_conformance.engines.render_derender import with_response
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.golden.scenario import SendMode, Step
from harmony_conformance.json_value import Json, JsonObject, integer, items, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS, content_text
from harmony_conformance.runner.latency.statistics import Sample, grouped_interval
from harmony_conformance.runner.request_builder import RequestProfile, build_request
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.transport.client import SendRequest
from harmony_conformance.transport.messages import Request
from harmony_conformance.transport.sse import Event
from harmony_ref import tokens

SCENARIO = "latency"
REQUESTS = 20
_WARM_UP = "warm-up, "
_MAX_WARM_UPS = 3
_LENGTH = 128
_DIGITS = 6
_MOST_TOKENS = 1_000_000_000
"""The largest count of tokens that is believed: figures are made of floats, which have no room for any whole number."""

_REASONING = (
    "The user asks for a steady stream of plain words, so I will write a short text about the sea. It should be calm and simple, with no list and no "
    "code. I will mention the wind, the waves, the light of the morning and a small boat that comes home. That is enough, and I can answer now."
)
_ANSWER = (
    "The sea is quiet in the morning. A light wind moves over the water, and small waves run up the sand and fall back again. Far out, a little boat "
    "comes home with the first catch of the day. The gulls follow it, the bell of the harbour rings, and the town slowly begins to wake."
)
_SCRIPT = (
    f"<|channel|>analysis<|message|>{_REASONING}<|end|><|start|>assistant<|channel|>final<|message|>{_ANSWER}<|return|>"
)
_QUESTION = "Count from 1 to 1000 in words, one number a line. Do not think about it, do not stop before you are done."
_UNTIL_THE_LIMIT: dict[str, JsonObject] = {"vllm": {"ignore_eos": True}}


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Times of one response, in seconds after the request was sent.

    Attributes:
        first_answer: Time of the first content or call, None if there was none.
        gaps: Times between events with tokens, in order.
        token_gaps: Gaps of exactly one token; None if unknown. They are known if the ids in the events add up to the
            completion tokens, or if there are as many events as tokens.
        tokens: Completion tokens as reported by the server, None without a count that can be true.
        bundled: Number of events that arrived together with the one before.
    """

    first_token: float
    first_answer: float | None
    end: float
    gaps: tuple[float, ...]
    token_gaps: tuple[float, ...] | None
    tokens: int | None
    bundled: int

    @property
    def time_per_output_token(self) -> float | None:
        """TPOT; None if fewer than two tokens are known."""
        return (
            (self.end - self.first_token) / (self.tokens - 1) if self.tokens is not None and self.tokens > 1 else None
        )


@dataclass(frozen=True, kw_only=True)
class UnmeasuredResponse:
    """A response without times. Failures are counted by `reason`."""

    reason: str


def measure(x: Exchange) -> Timing | UnmeasuredResponse:
    """Return the times of one streamed response; a truncated or empty response has none."""
    if reason := _unusable(x):
        return UnmeasuredResponse(reason=reason)
    events = [(event, choice) for event in _events(x) if (choice := _first_choice(event.value)) is not None]
    shown = [
        event
        for event, choice in events
        if _answers(value_at(choice, "delta"))
        or any(text(value_at(choice, "delta", name)) for name in REASONING_FIELDS)
    ]
    if not shown:
        return UnmeasuredResponse(reason="no token in the stream")
    finished = next((event for event, choice in events if text(value_at(choice, "finish_reason"))), None)
    if finished is None and not any(event.is_done for event in _events(x)):
        return UnmeasuredResponse(reason="the stream ends without finish_reason")
    reported = x.turn.usage.completion_tokens if x.turn is not None and x.turn.usage is not None else None
    completion = reported if reported is not None and 0 <= reported <= _MOST_TOKENS else None
    gaps = tuple(later.arrival_time - earlier.arrival_time for earlier, later in pairwise(shown))
    return Timing(
        first_token=shown[0].arrival_time,
        first_answer=next(
            (event.arrival_time for event, choice in events if _answers(value_at(choice, "delta"))), None
        ),
        end=(finished or shown[-1]).arrival_time,
        gaps=gaps,
        token_gaps=_token_gaps(events, gaps, completion),
        tokens=completion,
        bundled=sum(gap == 0 for gap in gaps),
    )


def _unusable(x: Exchange) -> str:
    if x.response is None or x.failure is not None:
        return x.failure.kind.value if x.failure is not None else "no response"
    if not x.response.is_success:
        return f"HTTP {x.response.status}"
    if x.stream is None:
        return "the response is not an event stream"
    return "the stream contains an error" if x.error is not None else ""


def _events(x: Exchange) -> tuple[Event, ...]:
    return x.stream.events if x.stream is not None else ()


def _first_choice(chunk: Json) -> Json:
    return next(
        (choice for choice in items(value_at(chunk, "choices")) if integer(value_at(choice, "index")) in (0, None)),
        None,
    )


def _answers(delta: Json) -> bool:
    return bool(content_text(value_at(delta, "content"))) or bool(items(value_at(delta, "tool_calls")))


def _token_gaps(
    events: Sequence[tuple[Event, Json]], gaps: tuple[float, ...], completion: int | None
) -> tuple[float, ...] | None:
    """Return the gaps before events of exactly one token. Ids that do not add up, as with omitted headers, prove nothing."""
    counts = [
        (event.arrival_time, len(ids)) for event, choice in events if (ids := items(value_at(choice, "token_ids")))
    ]
    if counts and completion in (None, sum(count for _, count in counts)):
        return tuple(later - earlier for (earlier, _), (later, count) in pairwise(counts) if count == 1)
    return gaps if completion == len(gaps) + 1 else None


def concurrency_levels(requests: int, concurrency: int) -> list[int]:
    """Return the concurrency of each load of the probe."""
    return sorted({1, min(max(concurrency, 1), max(requests, 1))})


def max_probe_requests(requests: int, concurrency: int) -> int:
    """Return the maximum number of requests of the probe, warm-ups included."""
    return sum(requests + (_MAX_WARM_UPS if load == 1 else load) for load in concurrency_levels(requests, concurrency))


def max_probe_tokens(requests: int, concurrency: int) -> int:
    """Return the maximum number of output tokens of the probe."""
    return max(_LENGTH, len(tokens.encode_with_special_tokens(_SCRIPT))) * max_probe_requests(requests, concurrency)


async def probe(
    send: SendRequest, asking: RequestProfile, engine: Engine, *, requests: int = REQUESTS, concurrency: int = 1
) -> tuple[Exchange, ...]:
    """Send the requests of the probe: a warm-up and a load with one at a time, then with `concurrency` at a time.

    Returns:
        All exchanges, warm-ups included, in the order in which they started; their step names the load.
    """
    sender = _Sender(send=send, request=build_request(_step(asking, engine), asking, {}), engine=engine.name)
    exchanges: list[Exchange] = []
    for at_once in concurrency_levels(requests, concurrency):
        warm = await sender.warm_up(at_once)
        exchanges += warm
        if any(isinstance(measure(x), Timing) for x in warm):
            exchanges += await sender.load(at_once, requests)
    return tuple(exchanges)


@dataclass(frozen=True, kw_only=True)
class _Sender:
    send: SendRequest
    request: Request
    engine: str

    async def warm_up(self, at_once: int) -> list[Exchange]:
        """Send `at_once` requests; a single one is repeated until it succeeds, at most three times."""
        step = _WARM_UP + load_name(at_once)
        if at_once > 1:
            return list(await asyncio.gather(*(self._one(step, place) for place in range(at_once))))
        done: list[Exchange] = []
        while len(done) < _MAX_WARM_UPS:
            done.append(await self._one(step, len(done)))
            if isinstance(measure(done[-1]), Timing):
                break
        return done

    async def load(self, at_once: int, requests: int) -> list[Exchange]:
        """Send requests with `at_once` clients; each client waits for a response before its next request."""
        places = iter(range(requests))
        done: dict[int, Exchange] = {}

        async def client() -> None:
            for place in places:
                done[place] = await self._one(load_name(at_once), place)

        await asyncio.gather(*(client() for _ in range(at_once)))
        return [x for _, x in sorted(done.items())]

    async def _one(self, step: str, place: int) -> Exchange:
        x = Exchange(
            id=f"{SCENARIO}/chat/{step.replace(' ', '-').replace(',', '')}/{place}",
            scenario=SCENARIO,
            step=step,
            attempt=place,
            engine=self.engine,
            request=self.request,
            validity=Validity.VALID,
        )
        return with_response(x, await self.send(self.request))


def load_name(at_once: int) -> str:
    """Return the name of a load."""
    return "one at a time" if at_once == 1 else f"{at_once} at a time"


def _step(asking: RequestProfile, engine: Engine) -> Step:
    if asking.script_method is not ScriptMethod.NONE:
        request: JsonObject = {"messages": [{"role": "user", "content": "Write a few plain sentences about the sea."}]}
        script = tuple(tokens.encode_with_special_tokens(_SCRIPT))
        return Step(name=SCENARIO, request=request, send_mode=SendMode.STREAM, script=script)
    request = {
        "messages": [{"role": "user", "content": _QUESTION}],
        "max_tokens": _LENGTH,
        "reasoning_effort": "low",
        **_UNTIL_THE_LIMIT.get(engine.name, {}),
    }
    return Step(name=SCENARIO, request=request, send_mode=SendMode.STREAM)


def summarise(exchanges: Iterable[Exchange]) -> tuple[JsonObject, ...]:
    """Return the latency lines of the report, one per load: requests, failures and metrics (unit, n, median, range)."""
    by_step: dict[str, list[Exchange]] = {}
    for x in exchanges:
        by_step.setdefault(x.step, []).append(x)
    loads = dict.fromkeys(step.removeprefix(_WARM_UP) for step in by_step)
    return tuple(_line(load, by_step.get(load, []), by_step.get(_WARM_UP + load, [])) for load in loads)


def _line(load: str, counted: list[Exchange], warm: list[Exchange]) -> JsonObject:
    exchanges = counted or warm
    measured = [measure(x) for x in exchanges]
    timings = [timing for timing in measured if isinstance(timing, Timing)]
    failures = Counter(one.reason for one in measured if isinstance(one, UnmeasuredResponse))
    notes = [*_notes(exchanges, timings)]
    if not counted:
        notes.insert(0, "stopped: every warm-up request failed")
    elif warm:
        notes.insert(0, f"{_requests(len(warm))} sent as warm-up, not counted")
    return {
        "load": load,
        "requests": len(exchanges),
        "failed": sum(failures.values()),
        "failures": dict[str, Json](sorted(failures.items())),
        "metrics": _metrics(timings),
        "notes": list[Json](notes),
    }


TIMES: Mapping[str, Callable[[Timing], Sequence[float | None]]] = MappingProxyType(
    {
        "ttft": lambda timing: [timing.first_token],
        "time_to_first_answer": lambda timing: [timing.first_answer],
        "inter_event_gap": lambda timing: timing.gaps,
        "itl": lambda timing: timing.token_gaps or (),
        "tpot": lambda timing: [timing.time_per_output_token],
        "end_to_end": lambda timing: [timing.end],
    }
)
"""Reads the values of each time in one response, in seconds."""


@dataclass(frozen=True, kw_only=True)
class MeasuredLoad:
    """The values of each time in a load, and the reasons of failed requests with their numbers."""

    requests: int
    failures: Mapping[str, int]
    values: Mapping[str, Sequence[float]]


def measured_load(exchanges: Iterable[Exchange], load: str) -> MeasuredLoad:
    """Return the values of a load of the probe. If every warm-up failed, their failures."""
    loaded = [x for x in exchanges if x.step.removeprefix(_WARM_UP) == load]
    measured = [measure(x) for x in [x for x in loaded if x.step == load] or loaded]
    timings = [one for one in measured if isinstance(one, Timing)]
    return MeasuredLoad(
        requests=len(measured),
        failures=Counter(one.reason for one in measured if isinstance(one, UnmeasuredResponse)),
        values={name: [value for group in _groups(timings, name) for value in group] for name in TIMES},
    )


def _groups(timings: Sequence[Timing], name: str) -> list[list[float]]:
    """Return the values of a time in each response that has some. ITL is known only if it is for every response."""
    if name == "itl" and any(timing.token_gaps is None for timing in timings):
        return []
    groups = ([value for value in TIMES[name](timing) if value is not None] for timing in timings)
    return [group for group in groups if group]


def _metrics(timings: Sequence[Timing]) -> JsonObject:
    times: JsonObject = {name: _metric("s", _groups(timings, name)) for name in TIMES}
    counts = [[float(timing.tokens)] for timing in timings if timing.tokens is not None]
    return {**times, "output_tokens": _metric("tokens", counts)}


def _metric(unit: str, groups: Sequence[Sequence[float]]) -> Json:
    """Return the figures of a metric, given its values in each request."""
    summary = Sample.of(value for group in groups for value in group).summary()
    if summary is None:
        return None
    figures = ((name, getattr(summary, name)) for name in ("n", "median", "min", "max", "p95", "p99"))
    interval: list[Json] = [
        None if end is None else round(end, _DIGITS) for end in grouped_interval(groups, 50).finite_ends
    ]
    rounded = {name: None if value is None else round(value, _DIGITS) for name, value in figures}
    return {"unit": unit, **rounded, "median_interval": interval}


def _notes(exchanges: Sequence[Exchange], timings: Sequence[Timing]) -> Iterator[str]:
    yield _length_note(exchanges[0].chat_request)
    yield "equal requests: a prefix cache makes the first token faster than for a new prompt"
    if waits := sum(len(x.retry_waits) for x in exchanges):
        yield f"{number_of(waits, 'retry', 'retries')} after 429 or 503; times count from the accepted request"
    if not timings:
        return
    if silent := sum(timing.first_answer is None for timing in timings):
        yield f"{silent} of {_requests(len(timings))} reached the limit before the answer began"
    if bundled := sum(timing.bundled for timing in timings):
        yield f"{bundled} of {number_of(sum(len(timing.gaps) for timing in timings), 'event')} arrived together with the one before"
    if any(timing.time_per_output_token is None for timing in timings):
        yield "no TPOT for streams whose usage lacks completion_tokens or reports fewer than two"
    if any(timing.token_gaps is None for timing in timings):
        yield "no ITL: events are not proven to have one token each, see inter_event_gap"


def _length_note(request: Json) -> str:
    if value_at(request, "harmony_script") is not None or value_at(request, "vllm_xargs", "harmony_script") is not None:
        return "fixed output: a script of reasoning and answer"
    limit = f"max_tokens {integer(value_at(request, 'max_tokens'))}"
    if value_at(request, "ignore_eos") is True:
        return f"fixed output length: {limit} with ignore_eos"
    return f"output length limited by {limit}, not fixed: shorter answers count as well"


def _requests(count: int) -> str:
    return number_of(count, "request")
