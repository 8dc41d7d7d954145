import httpx
import pytest

from harmony_conformance.reference_server import MODEL
from harmony_conformance.reference_server.serving import NotStarted, running_beside

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


def test_a_server_in_a_process_of_its_own_has_its_defects_and_is_gone_afterwards():
    with running_beside(defects=["usage-all-zero"]) as url:
        assert httpx.post(f"{url}/v1/chat/completions", json=ASK).json()["usage"]["prompt_tokens"] == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v1/models")


def test_one_that_does_not_come_up_is_an_error():
    with pytest.raises(NotStarted), running_beside(defects=["no such defect"]):
        pass
