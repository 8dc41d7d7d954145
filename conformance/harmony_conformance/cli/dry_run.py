"""`harmony-conformance run --dry-run`: the requests of a run, and bounds of their number, tokens and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from harmony_conformance.apis.registry import APIS, UnsupportedByApiError
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.target import Target
from harmony_conformance.golden.scenario import Scenario, Step, expand, skip_reason
from harmony_conformance.json_value import dumps, integer
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.latency import max_probe_requests, max_probe_tokens
from harmony_conformance.runner.request_builder import RequestProfile, StepSkippedError, build_request, default_limit
from harmony_conformance.runner.run import Options
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

    def __str__(self) -> str:
        return f"{self.requests} requests, about {self.input_tokens} input tokens, at most {self.output_tokens} output tokens"


def print_dry_run(target: Target, options: Options, plan: Plan, *, with_requests: bool) -> None:
    """Print the requests for an endpoint that shows no token ids, then the cost of each scenario and of the run."""
    method = _script_method(target, options.script)
    total = Cost()
    for scenario in plan.scenarios:
        if (reason := skip_reason(scenario, method)) is not None:
            print(f"{scenario.name}: not sent: {reason}")
            continue
        cost = Cost()
        for step, body in _requests(scenario, options, method):
            if with_requests:
                print(f"{scenario.name}/{scenario.api}/{step.name}: {Mask(options.secrets).mask_text(body)}")
            cost += _cost(step, body, method)
        cost = sum([cost] * options.tries, start=Cost())
        print(f"{scenario.name}: {cost}")
        total += cost
    at_once = options.max_concurrency(target)
    if options.latency_requests:
        count = max_probe_requests(options.latency_requests, at_once)
        tokens = max_probe_tokens(options.latency_requests, at_once)
        cost = Cost(requests=count, input_tokens=count * _SYSTEM_MESSAGE, output_tokens=tokens)
        print(f"latency: {cost}")
        total += cost
    total = Cost(
        requests=min(total.requests, options.max_requests or total.requests),
        input_tokens=total.input_tokens,
        output_tokens=min(total.output_tokens, options.max_tokens or total.output_tokens),
    )
    seconds = (total.output_tokens / _RATE + total.requests * _LATENCY) / at_once
    limit = min(seconds, options.max_time or seconds)
    print(f"{total}; plus a few requests for discovery")
    print(f"at most {_duration(limit)}, if {at_once} requests at a time get {_RATE} tokens a second each")


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
    return Cost(
        requests=1, input_tokens=len(encode_with_special_tokens(body)) + _SYSTEM_MESSAGE, output_tokens=most * answers
    )


def _duration(seconds: float) -> str:
    minutes = -(-int(seconds) // 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"  # noqa: PLR2004
