"""Repair or block answers under a policy. Pure functions on decoded bytes; only the checks decide whether an answer fails."""

from functools import partial

from harmony_proxy.policy.repair_interface import Caller, Handlers, call_here
from harmony_proxy.repair.answer.repair_table import REPAIRS, Repair
from harmony_proxy.repair.answer.strict_leaks import LEAK_CHECKS
from harmony_proxy.repair.answer.whole_answer import examine_answer, repair_answer
from harmony_proxy.repair.stream_repairer import StreamRepairer


def handlers(*, reasoning_field: str | None = None, call_apart: Caller = call_here) -> Handlers:
    """Return the handlers that repair and block.

    `reasoning_field`: the client's name for the reasoning (`reasoning`, `reasoning_content`); None: unchanged.
    `call_apart` examines large answers.
    """
    return Handlers(
        open_stream=partial(StreamRepairer, reasoning_field=reasoning_field, call_apart=call_apart),
        repair_answer=partial(examine_answer, reasoning_field=reasoning_field, call_apart=call_apart),
        repairable_checks=frozenset(REPAIRS),
        leak_checks=LEAK_CHECKS,
    )


__all__ = ["REPAIRS", "Repair", "StreamRepairer", "handlers", "repair_answer"]
