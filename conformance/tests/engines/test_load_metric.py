import pytest

from harmony_conformance.engines.load_metric import requests_running
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import METRICS_API
from harmony_conformance.transport.messages import Chunk, Request, Response

NAME = "vllm:num_requests_running"


def answered(text, *, status=200, engine="vllm", api=METRICS_API):
    return Exchange(
        id="load",
        api=api,
        engine=engine,
        request=Request(path="/metrics", method="GET", body=b""),
        response=Response(status=status, chunks=(Chunk(arrival_time=0.0, data=text.encode()),)),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(f"{NAME} 2\n", 2, id="without labels"),
        pytest.param(f'# HELP {NAME} 7\n{NAME}{{engine="0"}} 1.0\n', 1, id="comments and labels"),
        pytest.param(f'{NAME}{{engine="0"}} 1.0\n{NAME}{{engine="1"}} 2.0 1795247223\n', 3, id="summed, with a time"),
        pytest.param(f"{NAME} 0\n", 0, id="none"),
        pytest.param(f"{NAME}_by_reason 4\n", None, id="another name"),
        pytest.param(f"{NAME} -\n", None, id="no number"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_number_of_requests_is_read(text, told):
    assert requests_running(answered(text)) == told


@pytest.mark.parametrize("other", [{"status": 501}, {"engine": "openai"}, {"engine": "unheard-of"}, {"api": "chat"}])
def test_what_is_no_answer_of_a_known_gauge_tells_nothing(other):
    assert requests_running(answered(f"{NAME} 2\n", **other)) is None
