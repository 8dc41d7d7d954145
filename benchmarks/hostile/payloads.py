"""Hostile bytes: bombs, logs and texts."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from servers import completion

BLOCK = 16 * 2**20
LEAK = "<|channel|>analysis<|message|>The user wants a secret.<|end|><|start|>assistant<|channel|>final<|message|>No."
TERMINAL = "a\x1b[2J\x07b\x9b2Jc\u202ed\u2066e\u2028f\u200bg\U000e0041h\x00i"
"""C0 and C1 controls, bidi overrides, a line separator, a zero-width space and a tag character."""
NEVER_RAW = "\x00\x07\x1b\x9b\u202e\u2066\u2028\u200b\U000e0041"
BACKSLASHES = ("get\\weather", "a\\", "\\g<1>", "\\q", "\\1", "{}", "%s", "\\g<0>")


def zeros_gzip(size: int, byte: bytes = b"\0") -> bytes:
    """A gzip file of `size` equal bytes, a multiple of `BLOCK`, made in a moment: one deflated block is repeated."""
    block = byte * BLOCK
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(size // BLOCK):
        check = zlib.crc32(block, check)
    trailer = check.to_bytes(4, "little") + (size % 2**32).to_bytes(4, "little")
    return b"\x1f\x8b\x08\0\0\0\0\0\x02\xff" + packed * (size // BLOCK) + b"\x03\0" + trailer


def zeros_brotli(size: int) -> bytes:
    import brotli

    packer = brotli.Compressor(quality=3)
    return b"".join(packer.process(bytes(BLOCK)) for _ in range(size // BLOCK)) + packer.finish()


def zeros_zstd(size: int) -> bytes:
    import zstandard

    packer = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join(packer.compress(bytes(BLOCK)) for _ in range(size // BLOCK)) + packer.flush()


GIB = 2**30
BOMBS = {
    "gzip": lambda: zeros_gzip(2 * GIB),
    "deflate": lambda: zlib.compress(bytes(GIB), 9),
    "br": lambda: zeros_brotli(2 * GIB),
    "zstd": lambda: zeros_zstd(2 * GIB),
    "gzip, gzip": lambda: gzip.compress(zeros_gzip(4 * GIB), 9),
    "gzip, gzip, gzip": lambda: gzip.compress(gzip.compress(zeros_gzip(2 * GIB), 9), 9),
    "gzip, br": lambda: __import__("brotli").compress(zeros_gzip(2 * GIB), quality=5),
}
"""The bombs by their content-encoding."""

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]


def log_line(content: str, *, tool: str | None = None, number: int = 0) -> str:
    """A line of a log: a request with a tool, and an answer, which may call a tool of any name."""
    request = {"model": "gpt-oss-20b", "messages": [{"role": "user", "content": f"Question {number}"}], "tools": TOOLS}
    if tool is None:
        response = completion(content)
    else:
        call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": '{"city": "Ulm"}'}}
        response = completion(content, tool_calls=[call])
    return json.dumps({"request": request, "response": response})


def write_log(path: Path, lines: Iterable[str]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def ordinary_log(path: Path, count: int) -> Path:
    """A log of innocent and leaking lines, in turn."""
    return write_log(
        path, (log_line(LEAK if number % 5 == 0 else "It is sunny.", number=number) for number in range(count))
    )


def malformed_lines() -> Iterator[bytes]:
    """Lines that are no exchange, or hardly one."""
    good = log_line("Hello.").encode()
    yield b"\xef\xbb\xbf" + good
    yield good + b"\r"
    yield b"[" * 100_000
    yield b'{"a":' * 100_000
    yield b'{"request": NaN, "response": -Infinity}'
    yield b'{"request": {"model": ' + b"9" * 5000 + b'}, "response": {}}'
    yield good.replace(b"Hello.", b"\\ud800 \\udfff")
    yield good.replace(b"Hello.", b"\xff\xfe\xc0\x80")
    yield bytes(100_000)
    yield bytes(range(1, 256)).replace(b"\n", b"") * 4000
    yield good.replace(b"Hello.", b"<" * 3_000_000)
    yield good[:-20]
    yield b'"\\u0000"'
    yield good
