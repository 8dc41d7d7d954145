"""What is done to an answer under a policy: repaired, or blocked. Pure, on decoded bytes; whether something fails is said by the checks alone."""

from functools import partial

from harmony_proxy.acted import Actors
from harmony_proxy.acting.repairs import REPAIRS, Repair
from harmony_proxy.acting.stream import StreamActor
from harmony_proxy.acting.whole import act_on_whole


def actors(*, reasoning_field: str | None = None) -> Actors:
    """Those who act. `reasoning_field`: the name under which the client expects the reasoning (`reasoning`, `reasoning_content`); None: as it comes."""
    return Actors(
        stream=partial(StreamActor, reasoning_field=reasoning_field),
        whole=partial(act_on_whole, reasoning_field=reasoning_field),
        repairs=frozenset(REPAIRS),
    )


__all__ = ["REPAIRS", "Repair", "StreamActor", "act_on_whole", "actors"]
