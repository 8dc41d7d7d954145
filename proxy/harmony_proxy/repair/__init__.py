"""What is done to an answer under a policy: repaired, or blocked. Pure, on decoded bytes; whether something fails is said by the checks alone."""

from functools import partial

from harmony_proxy.policy.actions import Actors
from harmony_proxy.repair.answer.repair_table import REPAIRS, Repair
from harmony_proxy.repair.answer.whole_answer import act_on_whole
from harmony_proxy.repair.stream_repairer import StreamActor


def actors(*, reasoning_field: str | None = None) -> Actors:
    """Those who act. `reasoning_field`: the name under which the client expects the reasoning (`reasoning`, `reasoning_content`); None: as it comes."""
    return Actors(
        stream=partial(StreamActor, reasoning_field=reasoning_field),
        whole=partial(act_on_whole, reasoning_field=reasoning_field),
        repairs=frozenset(REPAIRS),
    )


__all__ = ["REPAIRS", "Repair", "StreamActor", "act_on_whole", "actors"]
