"""The reference server over a WebSocket, asked by OpenAI's client and by one that may send anything."""

import json

import httpx
import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from harmony_conformance.reference_server import MODEL, running

CREATE = {"type": "response.create", "model": MODEL, "input": "Is it sunny?", "store": False}


@pytest.fixture(scope="module")
def url():
    with running() as base:
        yield base


@pytest.fixture
def socket(url):
    with connect(f"ws{url.removeprefix('http')}/v1/responses") as connection:
        yield connection


def ask(connection, message):
    connection.send(message if isinstance(message, str | bytes) else json.dumps(message))
    events = []
    while not events or events[-1]["type"] not in ("response.completed", "error"):
        events.append(json.loads(connection.recv(timeout=20)))
    return events


def test_the_official_client_makes_a_round_trip_over_two_turns(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="-")
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input="Is it sunny?", store=False)
        first = list(until_the_end(connection))
        connection.response.create(
            model=MODEL, input="And tomorrow?", store=False, previous_response_id=first[-1].response.id
        )
        second = list(until_the_end(connection))
        connection.response.create(model=MODEL, input="Hi", previous_response_id="resp_0")
        error = next(until_the_end(connection))
    assert [event.type for event in first][:2] == ["response.created", "response.in_progress"]
    assert first[-1].response.output_text
    deltas = "".join(event.delta for event in first if event.type == "response.output_text.delta")
    assert deltas == first[-1].response.output_text
    assert second[-1].response.usage.input_tokens > first[-1].response.usage.input_tokens
    assert (error.status, error.error.code) == (400, "previous_response_not_found")


def until_the_end(connection):
    for event in connection:
        yield event
        if event.type in ("response.completed", "error"):
            return


def test_the_events_are_those_of_a_stream_over_http(url, socket):
    body = {"model": MODEL, "input": "Is it sunny?"}
    over_http = openai.OpenAI(base_url=f"{url}/v1", api_key="-").responses.create(**body, stream=True)
    over_socket = ask(socket, {**CREATE, **body})
    assert [event["type"] for event in over_socket] == [event.type for event in over_http]
    assert [event["sequence_number"] for event in over_socket] == list(range(len(over_socket)))


def test_only_the_connection_and_only_its_last_response_continues_what_is_not_stored(url, socket):
    first = ask(socket, CREATE)[-1]["response"]["id"]
    with connect(f"ws{url.removeprefix('http')}/v1/responses") as other:
        assert (
            ask(other, {**CREATE, "previous_response_id": first})[-1]["error"]["code"] == "previous_response_not_found"
        )
    second = ask(socket, {**CREATE, "previous_response_id": first})[-1]["response"]["id"]
    again = ask(socket, {**CREATE, "previous_response_id": first})[-1]
    assert again["error"]["code"] == "previous_response_not_found"
    assert ask(socket, {**CREATE, "previous_response_id": second})[-1]["type"] == "response.completed"


def test_a_stored_response_is_continued_over_http(url, socket):
    stored = ask(socket, {**CREATE, "store": True})[-1]["response"]["id"]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="-")
    assert client.responses.create(model=MODEL, input="More", previous_response_id=stored).status == "completed"


def test_a_failed_continuation_forgets_the_response(socket):
    last = ask(socket, CREATE)[-1]["response"]["id"]
    refused = ask(socket, {**CREATE, "previous_response_id": last, "temperature": 9})[-1]
    assert (refused["type"], refused["status"]) == ("error", 400)
    assert ask(socket, {**CREATE, "previous_response_id": last})[-1]["error"]["code"] == "previous_response_not_found"


def test_a_request_that_generates_nothing_has_an_id_to_continue(socket):
    warm = ask(socket, {**CREATE, "instructions": "Be brief.", "generate": False})
    assert [event["type"] for event in warm] == ["response.created", "response.completed"]
    response = warm[-1]["response"]
    assert (response["output"], response["usage"]["output_tokens"]) == ([], 0)
    answer = ask(socket, {**CREATE, "input": "Go on.", "previous_response_id": response["id"]})[-1]["response"]
    assert answer["usage"]["input_tokens"] > response["usage"]["input_tokens"] - 10


WRONG = {
    "no JSON": ("{", 400, "invalid_json"),
    "no object": ("[]", 400, "invalid_json"),
    "bytes that are no text": (b"\xff\xfe", 400, "invalid_json"),
    "an empty message": ("", 400, "invalid_json"),
    "another type": ({**CREATE, "type": "session.update"}, 400, "invalid_value"),
    "no type": ({"model": MODEL, "input": "Hi"}, 400, "invalid_value"),
    "in the background": ({**CREATE, "background": True}, 400, "unsupported_parameter"),
    "generate as a text": ({**CREATE, "generate": "no"}, 400, "invalid_value"),
    "another model": ({**CREATE, "model": "gpt-9"}, 404, "model_not_found"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_message_is_answered_by_an_error_event_and_the_connection_stays(socket, what):
    message, status, code = WRONG[what]
    (event,) = ask(socket, message)
    assert (event["type"], event["status"], event["error"]["code"]) == ("error", status, code)
    assert ask(socket, CREATE)[-1]["type"] == "response.completed"


def test_a_message_beyond_the_limit_ends_the_connection_alone(url, socket):
    with pytest.raises(ConnectionClosed):
        ask(socket, {**CREATE, "input": "x" * (17 * 1024 * 1024)})
    with connect(f"ws{url.removeprefix('http')}/v1/responses") as other:
        assert ask(other, CREATE)[-1]["type"] == "response.completed"


def test_no_compression_is_accepted(socket):
    assert socket.response.headers.get("sec-websocket-extensions") is None


PAGES = {
    "another origin": {"Origin": "https://example.com"},
    "another port of this machine": {"Origin": "http://127.0.0.1:1"},
    "a sandboxed page": {"Origin": "null"},
    "a malformed origin": {"Origin": "http://[::1"},
    "a name that points here": {"Host": "attacker.example"},
}


@pytest.mark.parametrize("what", PAGES)
def test_a_web_page_cannot_open_a_connection(url, what):
    headers = PAGES[what]
    address = f"ws{url.removeprefix('http')}/v1/responses"
    if "Host" in headers:
        host, port = address.removeprefix("ws://").partition("/")[0].split(":")
        with (
            pytest.raises(InvalidStatus) as refused,
            connect(f"ws://{headers['Host']}:{port}/v1/responses", address=(host, int(port))),
        ):
            pass
    else:
        with pytest.raises(InvalidStatus) as refused, connect(address, additional_headers=headers):
            pass
    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body)["error"]["code"] in ("origin_not_allowed", "host_not_allowed")


def test_a_page_of_the_server_itself_may(url):
    address = f"ws{url.removeprefix('http')}/v1/responses"
    with connect(address, additional_headers={"Origin": url}) as connection:
        assert ask(connection, CREATE)[-1]["type"] == "response.completed"


def test_a_client_that_leaves_amid_a_stream_ends_its_generation(url):
    with connect(f"ws{url.removeprefix('http')}/v1/responses") as connection:
        connection.send(json.dumps({**CREATE, "harmony_token_delay": 0.2}))
        connection.recv(timeout=20)
        assert "harmony_requests_running 1" in httpx.get(f"{url}/metrics").text
    for _ in range(100):
        if "harmony_requests_running 0" in httpx.get(f"{url}/metrics").text:
            return
    pytest.fail("the generation goes on")
