from enum import Enum, auto
from types import SimpleNamespace

import pytest

from harmony_conformance.engines.vllm_logits_processor import (
    ENDOFTEXT,
    VOCABULARY,
    Script,
    ScriptedLogits,
    VllmScriptError,
    read_script,
)

RETURN = 200002


class Move(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()


class FakeRow(dict):
    """Logits of one request; only what was set is there."""

    def fill_(self, value):
        self.clear()
        self["other"] = value


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        pytest.param(None, None, id="no vllm_xargs: untouched"),
        pytest.param({}, None, id="empty vllm_xargs: untouched"),
        pytest.param({"session_id": "a"}, None, id="somebody else's vllm_xargs: untouched"),
        pytest.param({"harmony_script": [200005, 1]}, Script(ids=(200005, 1)), id="a script, then endoftext"),
        pytest.param({"harmony_script": "200005 1"}, Script(ids=(200005, 1)), id="a script that is a text"),
        pytest.param(
            {"harmony_script": [1], "harmony_script_then": 2}, Script(ids=(1,), then=2), id="a script and what follows"
        ),
        pytest.param(
            {"harmony_script": [1], "harmony_script_then": "model"},
            Script(ids=(1,), then=None),
            id="a script, and the model goes on",
        ),
        pytest.param({"harmony_script": []}, Script(ids=()), id="an empty script stops at once"),
        pytest.param(
            {"harmony_script": (0, VOCABULARY - 1)}, Script(ids=(0, VOCABULARY - 1)), id="first and last token"
        ),
    ],
)
def test_script_is_read(extra, expected):
    assert read_script(extra) == expected


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        pytest.param({"harmony_script": "1 b"}, "harmony_script", id="a text that is no list"),
        pytest.param({"harmony_script": ""}, "harmony_script", id="an empty text is no list"),
        pytest.param({"harmony_script": 7}, "harmony_script", id="one number is no list"),
        pytest.param({"harmony_script": None}, "harmony_script", id="null is no list"),
        pytest.param({"harmony_script": [1, "2"]}, "harmony_script[1]", id="a string is no token"),
        pytest.param({"harmony_script": [1.0]}, "harmony_script[0]", id="a fraction is no token"),
        pytest.param({"harmony_script": [True]}, "harmony_script[0]", id="a boolean is no token"),
        pytest.param({"harmony_script": [0, 0, -1]}, "harmony_script[2]", id="below the vocabulary"),
        pytest.param({"harmony_script": [VOCABULARY]}, "harmony_script[0]", id="beyond the vocabulary"),
        pytest.param(
            {"harmony_script": [1], "harmony_script_then": VOCABULARY}, "harmony_script_then", id="followed by no token"
        ),
        pytest.param(
            {"harmony_script": [1], "harmony_script_then": None}, "harmony_script_then", id="followed by null"
        ),
        pytest.param({"harmony_script_then": 1}, "harmony_script_then", id="something follows, but what?"),
    ],
)
def test_bad_script_is_refused_before_it_is_queued(extra, field):
    with pytest.raises(VllmScriptError) as refused:
        ScriptedLogits.validate_params(SimpleNamespace(extra_args=extra))
    assert refused.value.field == field
    assert f"invalid vllm_xargs.{field}:" in str(refused.value)


def test_script_is_played_once_then_its_end_for_ever():
    script = Script(ids=(200005, RETURN))
    assert [script.token_at(position) for position in range(4)] == [200005, RETURN, ENDOFTEXT, ENDOFTEXT]


def scripted(*ids):
    return SimpleNamespace(extra_args={"harmony_script": list(ids)})


UNSCRIPTED = SimpleNamespace(extra_args=None)


def added(row, params, output=()):
    return (row, params, None, output)


@pytest.mark.parametrize(
    ("steps", "forced"),
    [
        pytest.param([{"added": [added(0, scripted(10))]}], {0: 10}, id="added"),
        pytest.param(
            [{"added": [added(0, scripted(10)), added(1, UNSCRIPTED)]}], {0: 10}, id="its neighbour is untouched"
        ),
        pytest.param([{"added": [added(0, scripted(10))]}, {"removed": [0]}], {}, id="removed"),
        pytest.param(
            [{"added": [added(0, scripted(10))]}, {"removed": [0], "added": [added(0, scripted(20))]}],
            {0: 20},
            id="removed and its row reused in one step",
        ),
        pytest.param(
            [{"added": [added(0, scripted(10))]}, {"added": [added(0, UNSCRIPTED)]}],
            {},
            id="replaced by an unscripted one",
        ),
        pytest.param(
            [{"added": [added(0, scripted(10))]}, {"moved": [(0, 3, Move.UNIDIRECTIONAL)]}], {3: 10}, id="moved"
        ),
        pytest.param(
            [{"added": [added(0, scripted(10)), added(1, scripted(20))]}, {"moved": [(1, 0, Move.UNIDIRECTIONAL)]}],
            {0: 20},
            id="moved over another",
        ),
        pytest.param(
            [{"added": [added(0, scripted(10)), added(1, scripted(20))]}, {"moved": [(0, 1, Move.SWAP)]}],
            {0: 20, 1: 10},
            id="swapped",
        ),
        pytest.param(
            [{"added": [added(0, scripted(10))]}, {"moved": [(0, 1, Move.SWAP)]}],
            {1: 10},
            id="swapped with an unscripted one",
        ),
        pytest.param(
            [{"added": [added(0, scripted(10))]}, {"moved": [(1, 0, Move.UNIDIRECTIONAL)]}],
            {},
            id="an unscripted one moved over it",
        ),
        pytest.param(
            [{"added": [added(0, scripted(10, 11, 12), [10, 11])]}], {0: 12}, id="preempted and resumed where it was"
        ),
        pytest.param([{"added": [added(0, scripted(10, 11), [-1])]}], {0: 11}, id="placeholders count as tokens"),
    ],
)
def test_each_script_follows_its_request_through_the_batch(steps, forced):
    processor = ScriptedLogits(None, None, is_pin_memory=False)
    for step in steps:
        processor.update_state(SimpleNamespace(**{"removed": [], "added": [], "moved": [], **step}))
        processor.update_state(None)
    logits = [FakeRow(untouched=1.0) for _ in range(4)]
    processor.apply(logits)
    untouched = {"untouched": 1.0}
    assert logits == [{"other": float("-inf"), forced[row]: 0.0} if row in forced else untouched for row in range(4)]


def test_position_is_read_from_the_growing_output():
    processor = ScriptedLogits(None, None, is_pin_memory=False)
    output = []
    processor.update_state(SimpleNamespace(removed=[], added=[added(0, scripted(10, 11), output)], moved=[]))
    for _ in range(3):
        (row,) = processor.apply([FakeRow()])
        output.append(next(token for token, value in row.items() if value == 0.0))
    assert output == [10, 11, ENDOFTEXT]


def test_the_model_goes_on_after_a_script_that_only_begins():
    processor = ScriptedLogits(None, None, is_pin_memory=False)
    begins = SimpleNamespace(extra_args={"harmony_script": [10], "harmony_script_then": "model"})
    processor.update_state(SimpleNamespace(removed=[], added=[added(0, begins, [10])], moved=[]))
    assert processor.apply([FakeRow(untouched=1.0)]) == [{"untouched": 1.0}]


def test_greedy_sampling_does_not_skip_the_processor():
    assert not ScriptedLogits(None, None, is_pin_memory=False).is_argmax_invariant()
