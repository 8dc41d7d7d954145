"""Each repair's proof (DESIGN §6): what its check fails on is repaired, or stands in the table with the reason; what fails nothing comes out as it came."""

import re
from collections import defaultdict

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.judge.check import Severity
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer, repair_answer
from harmony_proxy.repair.answer.check_verdicts import find_failures, run_checks

REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
BLOCKING = {rule.id: Action.BLOCK for rule in CHECKS if rule.severity is Severity.MUST}


def act(x, actions, *, fallback=Action.OBSERVE):
    """What goes to the client, and what was done."""
    if x.events is None:
        whole = repair_answer(x, actions, fallback=fallback)
        return x.response.body if whole.body is None else whole.body, whole.actions
    actor = StreamRepairer(x.request, x.response, x.api, actions, fallback=fallback, request_id=x.id, limit=1 << 24)
    out = [one for chunk in x.response.chunks for one in actor.feed(chunk.data)]
    return b"".join([*out, *actor.close()]), actor.actions


def words(said):
    """The letters of a text, header words and markers left out: what must not get lost."""
    bare = re.sub(
        r"<\|channel\|>\w+<\|constrain\|>\w+(?=<\|message\|>)|<\|channel\|>[^<]*\Z|<\|\w+\|>|&lt;\|\w+\|&gt;|\\u003c\|\w+\|\\u003e",
        " ",
        said or "",
    )
    return "".join(bare.split())


def told(turn):
    return (
        (turn.reasoning or "") + (turn.content or "") + "".join(call.name + call.arguments for call in turn.tool_calls)
    )


HEADER_WORDS = re.compile(r"assistant|analysis|commentary|final|json|code|to=|functions\.|</?think>|</?reasoning>")


def lost(before, after):
    """Letters of the answer that are nowhere in what became of it; a name may be shorter, a repetition may be gone."""
    now = HEADER_WORDS.sub("", words(told(after.turn)))
    was = HEADER_WORDS.sub("", words(told(before.turn)))
    return [part for part in re.findall(r"[A-Za-z]{3,}", was) if part not in now]


def examples(shown, check):
    """The failing examples, without those that a ruling makes a SHOULD: no policy acts on them."""
    failing = [one for one in shown if one.check == check and one.outcome == "fail"]
    return [one for one in failing if find_failures(one.x, (check,)) or not has_ruling(one)]


def has_ruling(one):
    results = run_checks(one.x, (one.check,))
    return any(finding.ruling for result in results for finding in result.findings)


WAYS = ("pieces", "ollama", "ollama, pieces", "generate", "response", "response, letters")
LEAKS = ("channels.no_channel_words", "channels.no_reasoning_in_content")
_NEAR = ("channels", "tool_calls", "reasoning", "streaming", "responses")
NEAR = frozenset(rule.id for rule in CHECKS if rule.family in _NEAR)


def ways(one, tellings, check):
    """The example, and the same answer told in other ways, as long as the check still fails: the key under which it stands in the table, and the exchange."""
    yield one.name, one.x, None
    suffix = " (without the ids)" if one.x.output.ids is not None else ""
    for name in WAYS if one.check in LEAKS else ("pieces", "ollama", "response"):
        x = tellings[name](one.x)
        if x is not None and check in find_failures(x, (check,)):
            yield one.name + (suffix or (" (streamed)" if x.events is not None else "")), x, NEAR


def is_repaired(check, x, judged, with_body):
    """Whether it is repaired; whatever becomes of it, each check with a repair is accounted for, and none fails anew."""
    data, acted = act(x, REPAIRING)
    after = with_body(x, data)
    before, now = find_failures(x, judged), find_failures(after, judged)
    told = {*acted.repair_counts, *acted.unrepaired_reasons}
    assert not find_failures(x, REPAIRS).keys() - told, "silent"
    assert not now.keys() - before.keys(), "fails anew"
    assert not (now.keys() & REPAIRS.keys()) - acted.unrepaired_reasons.keys(), "still fails, and is not left"
    return (
        check in before
        and check not in now
        and now.keys() <= before.keys()
        and not lost(x, after)
        and check in acted.repair_counts
    )


@pytest.mark.parametrize("check", sorted(REPAIRS))
def test_every_example_is_repaired_or_stands_in_the_table_with_the_reason(check, shown, tellings, with_body):
    verdicts = defaultdict(list)
    for one in examples(shown, check):
        for key, x, judged in ways(one, tellings, check):
            verdicts[key].append(is_repaired(check, x, judged, with_body))
    cannot = REPAIRS[check].unrepairable_examples
    listed = {key for key in verdicts if key in cannot or key.partition(" (")[0] in cannot}
    assert {key for key, told in verdicts.items() if not all(told)} - listed == set(), "not repaired"
    assert {key for key in cannot if key not in verdicts or all(verdicts[key])} == set(), "stale"


def chosen(one):
    """About one in twelve of the examples, and all of those of the repairs' checks."""
    return one.check in REPAIRS or sum(one.id.encode()) % 12 == 0


def test_what_breaks_nothing_that_is_repaired_comes_out_as_it_came(shown):
    for one in shown:
        data, _ = act(one.x, REPAIRING)
        if data != one.x.response.body:
            assert find_failures(one.x, REPAIRS), one.id


def test_the_same_streamed(shown, tellings):
    for one in shown:
        x = tellings["pieces"](one.x) if one.outcome != "fail" and chosen(one) else None
        if x is not None:
            data, _ = act(x, REPAIRING)
            if data != x.response.body:
                assert find_failures(x, REPAIRS), one.id


EXCUSED = ("variant-raw-mode", "variant-raw-reasoning-format", "variant-tags-asked-for")
"""Examples that the checks excuse by their request, and that are blocked nevertheless."""


def test_what_breaks_nothing_is_not_blocked(shown):
    for one in shown:
        if one.outcome != "fail" and chosen(one):
            data, acted = act(one.x, BLOCKING)
            if data != one.x.response.body or acted.blocked_checks:
                failing = set(find_failures(one.x, blocked=BLOCKING))
                assert set(acted.blocked_checks) == failing, one.id
                assert failing == set(find_failures(one.x)) or one.name in EXCUSED, one.id


@pytest.mark.parametrize("check", sorted(REPAIRS))
def test_what_fails_is_blocked(check, shown, tellings):
    for one in examples(shown, check):
        for x in (one.x, tellings["pieces"](one.x)):
            if x is None or check not in find_failures(x, (check,)):
                continue
            data, acted = act(x, {check: Action.BLOCK})
            assert acted.blocked_checks == (check,), one.id
            if x.events is not None:
                assert data.decode().rpartition('"error"')[2].count(check) == 1


@pytest.mark.parametrize("check", sorted(REPAIRS))
def test_what_cannot_be_repaired_is_blocked_where_that_is_the_fallback(check, shown):
    for one in examples(shown, check):
        if one.name in REPAIRS[check].unrepairable_examples and check in find_failures(one.x, (check,)):
            _, acted = act(one.x, {check: Action.REPAIR}, fallback=Action.BLOCK)
            assert acted.blocked_checks == (check,), one.id
