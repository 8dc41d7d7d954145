"""A Ray that cannot start or be reached is one line with exit code 2. Ray itself is not needed: a module in its place fails as it does."""

import importlib.machinery
import json
import os
import socket
import sys
import types

import pytest

from harmony_conformance.audit.batches import Batch, ReadOptions
from harmony_conformance.audit.processes import ray_pool
from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit, UsageError

FAILURES = {
    # errors that ray.init raises, and what the line has of them
    "times out": (
        Exception("The current node timed out during startup.\nmore"),
        "Exception: The current node timed out",
    ),
    "no address": (ConnectionError("Could not find any running Ray instance"), "ConnectionError: Could not find any"),
    "no memory": (OSError(12, "Cannot allocate memory"), "OSError: [Errno 12] Cannot allocate memory"),
    "without a text": (AssertionError(), "AssertionError; --engine local needs no cluster"),
}


@pytest.fixture
def log(tmp_path):
    message = {"role": "assistant", "content": "Hello."}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    pair = {"request": asked, "response": {"object": "chat.completion", "choices": choices}}
    (path := tmp_path / "log.jsonl").write_text(json.dumps(pair) + "\n", "utf-8")
    return path


@pytest.fixture
def listener():
    """An address at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("is_cluster", [False, True], ids=["on this machine", "a cluster"])
@pytest.mark.parametrize("name", FAILURES)
def test_a_ray_that_cannot_start_is_one_usage_line(log, request, monkeypatch, name, is_cluster):
    capsys = request.getfixturevalue("capsys")
    error, part = FAILURES[name]
    address = request.getfixturevalue("listener") if is_cluster else None
    out = log.parent / "out"
    ended = []

    def init(**_):
        raise error

    ray = types.ModuleType("ray")
    ray.__spec__ = importlib.machinery.ModuleSpec("ray", None)
    ray.init, ray.shutdown = init, lambda: ended.append(True)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    assert main(["audit", str(log), "--engine", "ray", "--out", str(out)]) == Exit.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    reason = "the cluster at RAY_ADDRESS cannot be reached" if address else "Ray cannot start on this machine"
    assert line.startswith(f"harmony-conformance audit: --engine ray: {reason}: {part}")
    assert len(ended) == (3 if name == "times out" and not address else 1)
    assert not (out / "audit.jsonl").exists()


def test_arrow_gets_the_allocator_of_the_system_before_ray_imports_it(monkeypatch):
    """Its own one reserves a gigabyte, so that this process could read no Parquet afterwards."""
    name, found = "ARROW_DEFAULT_MEMORY_POOL", []
    monkeypatch.setenv(name, "mimalloc")
    monkeypatch.delenv(name)

    def import_ray(_):
        found.append(os.environ.get(name))
        raise UsageError("no Ray")

    monkeypatch.setattr(ray_pool, "require", lambda *_: None)
    monkeypatch.setattr(ray_pool, "import_module", import_ray)
    with pytest.raises(UsageError, match="no Ray"):
        ray_pool.RayPool(ReadOptions(), 1).submit(Batch(file="log", lines=()))
    assert found == ["system"]


def test_a_start_that_ray_gave_up_is_repeated():
    failures = [Exception("The current node timed out during startup. This could happen"), None]
    ended = []

    def start():
        if (failure := failures.pop(0)) is not None:
            raise failure

    ray_pool._start(start, lambda: ended.append(True), has_address=False)
    assert (failures, ended) == ([], [True])


def test_an_address_at_which_nothing_listens_is_refused_before_ray_tries(listener):
    ray_pool._check_address(listener)
    for other in ("", "auto", "local", "ray://127.0.0.1:1"):
        ray_pool._check_address(other)
    for address in ("127.0.0.1:1", "[::1]:1", "127.0.0.1:99999999"):
        with pytest.raises(UsageError, match="the cluster at RAY_ADDRESS cannot be reached") as raised:
            ray_pool._check_address(address)
        assert address in str(raised.value)
        assert "\n" not in str(raised.value)
