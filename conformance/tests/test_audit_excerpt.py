import pytest
from harmony_conformance.audit.excerpt import Excerpts, apply_excerpts, names_in, redact
from harmony_conformance.check import Finding
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import dumps
from harmony_conformance.wire import Chunk, Request, Response
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        pytest.param("My password is hunter2!", "xx xxxxxxxx xx xxxxxx0!", id="letters and digits"),
        pytest.param("Grüße, 東京 ١٢", "xxxxx, xx 00", id="of every script"),
        pytest.param("<|channel|>analysis<|message|>Sue", "<|channel|>analysis<|message|>xxx", id="markers stay"),
        pytest.param("⟦end⟧Sue", "⟦end⟧xxx", id="markers of a prompt stay"),
        pytest.param(
            "analysisWe think.assistantfinalHi", "analysisxx xxxxx.assistantfinalxx", id="glued channel words"
        ),
        pytest.param("snowassistantfinalSue", "xxxxassistantfinalxxx", id="also within a word"),
        pytest.param("finally", "xxxxxxx", id="a word that begins as a channel does"),
        pytest.param("<|Sue_Miller|>", "<|xxx_xxxxxx|>", id="a name between bars is no marker"),
        pytest.param(
            '{"role": "assistant", "name": "Sue"}', '{"role": "assistant", "xxxx": "xxx"}', id="the API's words"
        ),
    ],
)
def test_redacted_text_keeps_its_shape_and_what_is_of_the_protocol(text, shape):
    assert redact(text) == shape


@given(st.text(max_size=40))
def test_redacted_text_is_as_long_as_it_was(text):
    assert len(redact(text)) == len(text)


@given(st.text(alphabet="bdghjkquvwyz0123456789", min_size=1, max_size=20))
def test_no_letter_of_other_words_stays(text):
    assert set(redact(text)) <= {"x", "0"}


FINDING = Finding(
    message="the call of look_up_patient is not in the prompt: 'Sue'",
    at="/messages/1",
    expected="Sue",
    actual="Sue Miller",
    excerpt="<|end|>Sue",
)


@pytest.mark.parametrize(
    ("excerpts", "shown"),
    [
        (Excerpts.FULL, FINDING),
        (
            Excerpts.REDACTED,
            Finding(
                message="the call of xxxx_xx_xxxxxxx is not in the prompt: 'xxx'",
                at="/messages/1",
                expected="xxx",
                actual="xxx xxxxxx",
                excerpt="<|end|>xxx",
            ),
        ),
        (
            Excerpts.NONE,
            Finding(message="the call of xxxx_xx_xxxxxxx is not in the prompt: 'xxx'", at="/messages/1"),
        ),
    ],
)
def test_a_finding_shows_as_much_as_was_allowed(excerpts, shown):
    assert apply_excerpts(FINDING, excerpts, {"look_up_patient"}) == shown


def test_the_names_of_functions_are_the_applications():
    asked = {
        "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "b"}}]}, 3],
        "tools": [{"function": {"name": "a"}}, "odd"],
    }
    x = Exchange(id="x", request=Request(path="/v1/chat/completions", body=dumps(asked).encode()))
    assert names_in(x) == {"a", "b"}


def test_ids_that_are_no_tokens_name_nothing():
    body = {"choices": [{"message": {"content": "x"}, "token_ids": [10**30, -1]}]}
    x = Exchange(
        id="x",
        request=Request(path="/v1/chat/completions", body=b"{}"),
        response=Response(status=200, chunks=(Chunk(at=0.0, data=dumps(body).encode()),)),
    )
    assert names_in(x) == set()
