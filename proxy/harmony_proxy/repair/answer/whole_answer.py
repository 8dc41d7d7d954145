"""What is done to a whole answer: repaired, withheld, or left as it is. A repair is judged before it is sent: it stands only if nothing fails anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, dumps, text
from harmony_conformance.judge.check import Finding
from harmony_conformance.transport.messages import Chunk
from harmony_proxy.policy.actions import Actions, RepairedAnswer
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair.answer.check_verdicts import failing, fails, judged
from harmony_proxy.repair.answer.fixes import MENDINGS, FailingAnswer, declared_by
from harmony_proxy.repair.answer.repair_table import NO_REPAIR, REPAIRS
from harmony_proxy.repair.text.api_dialects import Dialect
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError
from harmony_proxy.repair.text.responses_answer import WHOLE


def repair_answer(
    x: Exchange, actions: Mapping[str, Action], *, fallback: Action, reasoning_field: str | None = None
) -> RepairedAnswer:
    """Judge a whole answer by the checks that are to be repaired or blocked, and act.

    Where `acted.blocked` names a check, the answer is withheld, whatever `body` is. `reasoning_field`: the name under which the client expects the
    reasoning.
    """
    acting = [check for check, action in actions.items() if action is not Action.OBSERVE]
    results = judged(x, acting)
    found = failing(results)
    mended, reasons = x, dict[str, str]()
    wanted = {check for check in found if actions[check] is Action.REPAIR}
    if wanted:
        mended, reasons = _repaired(x, {check: found[check] for check in wanted})
    still = fails(mended, found) if mended is not x else found
    repaired = {check: len(found[check]) for check in found if check not in still and check in wanted}
    left = {check: reasons.get(check, NO_REPAIR) for check in still if check in wanted}
    blocked = tuple(sorted(check for check in still if actions[check] is Action.BLOCK or fallback is Action.BLOCK))
    renamed = _renamed(mended, reasoning_field) if reasoning_field is not None else None
    body = renamed if renamed is not None else mended.response.body if mended is not x and mended.response else None
    return RepairedAnswer(body=body, actions=Actions(repaired=repaired, blocked=blocked, left=left), results=results)


def _repaired(x: Exchange, found: Mapping[str, tuple[Finding, ...]]) -> tuple[Exchange, dict[str, str]]:
    """The exchange with as much of it repaired as can be, and why the rest can not."""
    reasons: dict[str, str] = {}
    dialect = WHOLE.get(x.api)
    if dialect is None or x.response_json is None:
        return x, dict.fromkeys(found, f"answers of the API {x.api} are not repaired")
    before = frozenset(fails(x))
    now, open_ = x, dict(found)
    for _ in found:
        step = _step(now, dialect, {check: one for check, one in open_.items() if check in REPAIRS}, before, reasons)
        if step is None:
            break
        now = step
        open_ = dict(fails(now, found))
    return now, reasons


def _step(
    x: Exchange,
    dialect: Dialect,
    found: Mapping[str, tuple[Finding, ...]],
    before: frozenset[str],
    reasons: dict[str, str],
) -> Exchange | None:
    """The first change by which fewer checks fail, and none anew."""
    answer = FailingAnswer(x=x, dialect=dialect, value=x.response_json, found=found, declared=declared_by(x))
    failed = frozenset(fails(x))
    for mend in MENDINGS:
        if not any(mend in REPAIRS[check].by for check in found):
            continue
        try:
            value = mend(answer)
        except NoDestinationError as problem:
            reasons.update(dict.fromkeys(found, f"the model wrote {problem}"))
            continue
        if value is None or value == x.response_json:
            continue
        changed = with_body(x, value)
        after = frozenset(fails(changed))
        if after <= before and not found.keys() <= after and after < failed:
            return changed
    return None


def with_body(x: Exchange, value: Json) -> Exchange:
    """The exchange with another answer."""
    if x.response is None:
        return x
    last = x.response.chunks[-1].at if x.response.chunks else 0.0
    data = dumps(value).encode("utf-8", "backslashreplace")
    return replace(x, response=replace(x.response, chunks=(Chunk(at=last, data=data),)))


def _renamed(x: Exchange, name: str) -> bytes | None:
    dialect = WHOLE.get(x.api)
    if dialect is None or x.response_json is None or len(dialect.reasoning) == 1:
        return None
    said = {part.choice: [renamed(part.said, dialect, name)] for part in dialect.parts(x.response_json)}
    told = dialect.told(x.response_json, said, {})
    if not told or told[0] == x.response_json:
        return None
    return dumps(told[0]).encode("utf-8", "backslashreplace")


def renamed(said: JsonObject, dialect: Dialect, name: str) -> JsonObject:
    """A message or a delta with its reasoning under another name. Where it has that name already, the others stay."""
    if dialect.calls_are_whole or name in said:
        return said
    own = next(
        (one for one in dialect.reasoning if one in said and (said[one] is None or text(said[one]) or True)), None
    )
    return {name if one == own else one: value for one, value in said.items()} if own is not None else said
