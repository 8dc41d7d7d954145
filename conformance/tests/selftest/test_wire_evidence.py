"""What a failure rests on, beyond what crossed the wire."""

from dataclasses import replace

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.selftest.through_proxy import (
    SUITE_ONLY_FACTS,
    fails,
    required_facts,
    unclassified_members,
    wire_only,
)

RULES = {rule.id: rule for rule in CHECKS}
EXAMPLES = {example.id: example for example in golden.examples()}


def exchange_of(name):
    (exchange,) = EXAMPLES[name].series.exchanges.values()
    return exchange


def test_every_member_of_an_exchange_is_of_the_wire_or_listed():
    assert unclassified_members() == frozenset()


def test_what_the_bytes_show_rests_on_nothing_else():
    x = exchange_of("streaming.ends_with_done/fail-error-swallowed")
    assert required_facts(RULES["streaming.ends_with_done"], x) == ()
    assert fails(RULES["streaming.ends_with_done"], wire_only(x))


def test_a_loss_rests_on_what_the_model_was_made_to_say():
    x = exchange_of("channels.preamble_is_shown/fail-lost")
    rule = RULES["channels.preamble_is_shown"]
    x = replace(x, script=x.output.ids, response=without_ids(x.response))
    assert fails(rule, x)
    assert required_facts(rule, x) == ("the script of the model",)


def without_ids(response):
    from harmony_conformance.transport.messages import Chunk

    data = b"".join(chunk.data for chunk in response.chunks).replace(b'"token_ids"', b'"other_ids"')
    return replace(response, chunks=(Chunk(arrival_time=0.0, data=data),))


@pytest.mark.parametrize("about", SUITE_ONLY_FACTS)
def test_knowledge_is_reported_in_words_that_end_a_sentence(about):
    assert about[0].islower()
    assert not about.endswith(".")
