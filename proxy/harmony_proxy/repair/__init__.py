"""What is done to an answer under a policy: repaired, or blocked. Pure, on decoded bytes; whether something fails is said by the checks alone."""

from functools import partial

from harmony_proxy.policy.actions import Handlers
from harmony_proxy.repair.answer.repair_table import REPAIRS, Repair
from harmony_proxy.repair.answer.whole_answer import repair_answer
from harmony_proxy.repair.stream_repairer import StreamRepairer


def handlers(*, reasoning_field: str | None = None) -> Handlers:
    """Those who act. `reasoning_field`: the name under which the client expects the reasoning (`reasoning`, `reasoning_content`); None: as it comes."""
    return Handlers(
        stream=partial(StreamRepairer, reasoning_field=reasoning_field),
        whole=partial(repair_answer, reasoning_field=reasoning_field),
        repairs=frozenset(REPAIRS),
    )


__all__ = ["REPAIRS", "Repair", "StreamRepairer", "handlers", "repair_answer"]
