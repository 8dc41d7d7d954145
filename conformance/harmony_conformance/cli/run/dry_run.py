"""`--dry-run` of `run`, `rates` and `load`: requests that would be sent, and bounds of their number, tokens and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from harmony_conformance.apis.registry import APIS, UnsupportedByApiError
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.target import Target
from harmony_conformance.golden.scenario import Scenario, Step, expand, skip_reason
from harmony_conformance.json_value import dumps, integer
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.latency.latency_probe import max_probe_requests, max_probe_tokens
from harmony_conformance.runner.request_builder import RequestProfile, StepSkippedError, build_request, default_limit
from harmony_conformance.runner.run import Options
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.transport.redaction import Mask
from harmony_ref import encode_with_special_tokens

_CONTEXT = 131_072
"""Tokens of gpt-oss's context: no answer is longer, whatever a request allows."""
_RATE = 50
"""Output tokens in a second for one request: a slow server. The time is a bound, not a forecast."""
_LATENCY = 0.5  # seconds until the first token
_SYSTEM_MESSAGE = 70  # tokens that every prompt begins with


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Number of requests, estimate of their input tokens, bound of their output tokens."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )

    def within(self, most_requests: int | None, most_tokens: int | None) -> Cost:
        """Return the cost within the limits of a run."""
        return Cost(
            requests=min(self.requests, most_requests or self.requests),
            input_tokens=self.input_tokens,
            output_tokens=min(self.output_tokens, most_tokens or self.output_tokens),
        )

    def duration(self, at_once: int, most_seconds: float | None) -> str:
        """Return a bound of the time, for so many requests at a time."""
        seconds = (self.output_tokens / _RATE + self.requests * _LATENCY) / at_once
        return f"at most {_duration(min(seconds, most_seconds or seconds))}"

    def __str__(self) -> str:
        return (
            f"{number_of(self.requests, 'request')}, about {number_of(self.input_tokens, 'input token')},"
            f" at most {number_of(self.output_tokens, 'output token')}"
        )


def print_dry_run(target: Target, options: Options, plan: Plan, *, with_rows: bool, with_requests: bool) -> None:
    """Print the requests for an endpoint that shows no token ids, the cost of each scenario, and that of the run.

    A server that turns out to play scripts gets more requests: for a URL of an unknown server both costs are printed.
    """
    method = _script_method(target, options.script)
    total = Cost()
    for scenario in plan.scenarios:
        reason = skip_reason(scenario, method)
        cost = _scenario_cost(scenario, options, method, with_requests=with_requests and reason is None)
        if with_rows:
            print(f"{scenario.name}: {cost}" if reason is None else f"{scenario.name}: not sent: {reason}")
        total += cost
    at_once = options.max_concurrency(target)
    probe = _latency_cost(options, at_once)
    if with_rows and probe.requests:
        print(f"latency: {probe}")
    shown = (total + probe).within(options.max_requests, options.max_tokens)
    print(f"{shown}, {shown.duration(at_once, options.max_time)}; plus a few requests for discovery")
    if target.base_url is not None and options.script == "auto" and method is ScriptMethod.NONE:
        costs = (_scenario_cost(scenario, options, ScriptMethod.REFERENCE) for scenario in plan.scenarios)
        most = sum(costs, start=probe).within(options.max_requests, options.max_tokens)
        print(
            f"if the server plays scripts, as `harmony-conformance serve` does: {most}, {most.duration(at_once, options.max_time)}"
        )
    print_assumptions(at_once)


def print_assumptions(at_once: int) -> None:
    """Print the assumption of the time, and what a dry run does not test."""
    print(f"the time assumes that {number_of(at_once, 'request')} at a time get {_RATE} tokens a second each")
    print("nothing was sent: the URL, the key and the model were not tested")


def request_cost(body: str, output_tokens: int, count: int = 1) -> Cost:
    """Return the cost of so many equal requests, each with at most so many output tokens."""
    read = len(encode_with_special_tokens(body)) + _SYSTEM_MESSAGE
    return Cost(requests=count, input_tokens=count * read, output_tokens=count * output_tokens)


def _scenario_cost(scenario: Scenario, options: Options, method: ScriptMethod, *, with_requests: bool = False) -> Cost:
    """Return the cost of a scenario, nothing if it is not sent. `with_requests`: print its requests."""
    cost = Cost()
    if skip_reason(scenario, method) is not None:
        return cost
    for step, body in _requests(scenario, options, method):
        if with_requests:
            print(f"{scenario.name}/{scenario.api}/{step.name}: {Mask(options.secrets).mask_text(body)}")
        cost += _cost(step, body, method)
    return sum([cost] * options.tries, start=Cost())


def _latency_cost(options: Options, at_once: int) -> Cost:
    if not options.latency_requests:
        return Cost()
    count = max_probe_requests(options.latency_requests, at_once)
    tokens = max_probe_tokens(options.latency_requests, at_once)
    return Cost(requests=count, input_tokens=count * _SYSTEM_MESSAGE, output_tokens=tokens)


def _script_method(target: Target, script: str) -> ScriptMethod:
    if script != "auto":
        return ScriptMethod(script)
    return ScriptMethod.REFERENCE if target.engine.name == ScriptMethod.REFERENCE else ScriptMethod.NONE


def _requests(scenario: Scenario, options: Options, method: ScriptMethod) -> Iterator[tuple[Step, str]]:
    """Yield the steps of a scenario that are sent, with their bodies without scripts."""
    api = APIS[scenario.api]
    profile = RequestProfile(
        model=options.model or "MODEL", extra_body=options.extra_body, seed=options.seed, api=api, path=api.path
    )
    for step in expand(scenario):
        chooses_size = step.stream_chunk_size is not None
        if step.wait_until_idle is not None or (chooses_size and not method.capabilities.can_choose_event_size):
            continue
        try:
            yield (
                step,
                build_request(replace(step, stream_chunk_size=None), profile, {}).body.decode("utf-8", "replace"),
            )
        except StepSkippedError:  # it needs an earlier answer
            yield step, dumps(step.request)
        except UnsupportedByApiError:
            continue


def _cost(step: Step, body: str, method: ScriptMethod) -> Cost:
    limits = (step.request.get(name) for name in ("max_completion_tokens", "max_tokens"))
    own = next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)
    usual = default_limit(step, scripted=method is not ScriptMethod.NONE)
    is_scripted = method is not ScriptMethod.NONE and step.script is not None
    most = usual if own is None or is_scripted else min(own, _CONTEXT)
    answers = max(1, integer(step.request.get("n")) or 1)
    return request_cost(body, most * answers)


def _duration(seconds: float) -> str:
    minutes = -(-int(seconds) // 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"  # noqa: PLR2004
