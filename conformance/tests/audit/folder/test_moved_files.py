"""An incremental audit counts no exchange again when a log was renamed or compressed since the last one, as by a rotation."""

import bz2
import gzip
import json
import shutil
import sqlite3

import pytest
import zstandard

from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit


def exchange(content):
    message = {"role": "assistant", "content": content}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    return json.dumps({"request": asked, "response": body}).encode() + b"\n"


OLD = [exchange("Same."), exchange("Hello.<|end|>"), exchange("Hello.")]
MORE = [exchange("Later.<|end|>")]
NEXT = [exchange("Same."), exchange("New.")]  # begins with the same record as the old log


def compress(path, suffix, write):
    path.with_name(path.name + suffix).write_bytes(write(path.read_bytes()))
    path.unlink()


def append(path, lines):
    with path.open("ab") as file:
        file.write(b"".join(lines))


def rename(path):
    path.rename(path.with_name("old.log"))


def rotate(path):
    compress(path, ".1.gz", gzip.compress)
    path.write_bytes(b"".join(NEXT))


def rotate_after_more(path):
    append(path, MORE)
    rotate(path)


def swap_names(path):
    path.rename(path.with_name("b.log"))
    path.write_bytes(b"".join(NEXT))


@pytest.fixture
def audit(tmp_path, capsys):
    """Audit the folder `log` again. Return the number of exchanges, those of them that failed, and the lines on standard error."""

    def again():
        out = tmp_path / "out"
        code = cli.main(["audit", str(tmp_path / "log"), "--out", str(out), "--workers", "1", "--incremental"])
        shown = capsys.readouterr().err
        assert code == Exit.DIVERGES, shown
        header = json.loads((out / "audit.jsonl").read_text("utf-8").splitlines()[0])
        return header["exchanges"], header["must"], shown

    (tmp_path / "log").mkdir()
    return again


@pytest.mark.parametrize(
    ("change", "expected", "name"),
    [
        (lambda path: compress(path, ".gz", gzip.compress), [3, 1], "a.log.gz"),
        (lambda path: compress(path, ".bz2", bz2.compress), [3, 1], "a.log.bz2"),
        (lambda path: compress(path, ".zst", zstandard.compress), [3, 1], "a.log.zst"),
        (rename, [3, 1], "old.log"),
        (rotate, [5, 1], "a.log.1.gz"),
        (rotate_after_more, [6, 2], "a.log.1.gz"),
        (swap_names, [5, 1], "b.log"),
    ],
    ids=["gzip", "bzip2", "zstd", "rename", "rotation", "rotation of a log that has grown", "another log has its name"],
)
def test_a_log_with_another_name_is_not_counted_again(tmp_path, audit, change, expected, name):
    (path := tmp_path / "log" / "a.log").write_bytes(b"".join(OLD))
    assert audit()[:2] == (3, 1)
    change(path)
    *counts, shown = audit()
    assert counts == expected
    assert f"{path}: now {path.with_name(name)}, its 3 records were judged\n" in shown
    *counts, shown = audit()
    assert (counts, shown.count("were judged")) == (expected, 0)


def test_a_rotation_of_all_names_is_followed(tmp_path, audit):
    logs = [tmp_path / "log" / f"a.log.{number}" for number in range(3)]
    for number, path in enumerate(logs):
        path.write_bytes(exchange(f"Hello {number}.<|end|>") * 2)
    assert audit()[:2] == (6, 6)
    logs[2].unlink()
    logs[1].rename(logs[2])
    logs[0].rename(logs[1])
    logs[0].write_bytes(exchange("New."))
    assert audit()[:2] == (7, 6)
    append(logs[0], MORE)
    assert audit()[:2] == (8, 7)


def test_a_copy_of_a_log_is_another_log(tmp_path, audit):
    (path := tmp_path / "log" / "a.log").write_bytes(b"".join(OLD))
    assert audit()[:2] == (3, 1)
    shutil.copy(path, path.with_name("b.log"))
    append(path, MORE)
    *counts, shown = audit()
    assert (counts, "were judged" in shown) == ([7, 3], False)


def test_a_database_with_another_name_is_not_counted_again(tmp_path, audit):
    path = tmp_path / "log" / "a.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE calls (request TEXT, response TEXT)")
        for line in map(json.loads, OLD):
            database.execute(
                "INSERT INTO calls VALUES (?, ?)", [json.dumps(line[one]) for one in ("request", "response")]
            )
    database.close()
    assert audit()[:2] == (3, 1)
    path.rename(path.with_name("b.db"))
    assert audit()[:2] == (3, 1)


def test_a_log_that_was_replaced_without_a_trace_is_refused(tmp_path, audit, capsys):
    (path := tmp_path / "log" / "a.log").write_bytes(b"".join(OLD))
    audit()
    path.write_bytes(b"".join(NEXT))
    out = str(tmp_path / "out")
    assert cli.main(["audit", str(path), "--out", out, "--workers", "1", "--incremental"]) == Exit.USAGE
    assert f"expected {path} with the 3 records of the last audit" in capsys.readouterr().err
