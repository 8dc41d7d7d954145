"""The errors of h11 as sentences: what is wrong in an HTTP/1.1 answer, and what would be right. h11 has no codes, hence its texts."""

from __future__ import annotations

import ast
import re

_QUOTE = r"(?:bytearray\()?(?P<got>b(?P<q>['\"]).*(?P=q))\)?"
"""The form in which h11 quotes the answer: `bytearray(b'…')` or `b'…'`."""
_STATUS_LINE = "invalid answer: expected a status line of HTTP such as HTTP/1.1 200 OK, got "
_DISCONNECTED, _REQUEST_LINE = "Server disconnected without sending a response.", "illegal request line"
_WITHOUT_STATUS_LINE = frozenset({_DISCONNECTED, _REQUEST_LINE})
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake
_TABLE = (
    (re.escape(_DISCONNECTED), "the server closed the connection without an answer"),
    (rf"illegal status line: {_QUOTE}", f"{_STATUS_LINE}{{got}}"),
    (rf"{_REQUEST_LINE}|no response line received", f"{_STATUS_LINE}something else"),
    (rf"illegal header line: {_QUOTE}", "invalid header: expected NAME: VALUE, got {got}"),
    (
        rf"Illegal header (?P<part>name|value) {_QUOTE}",
        "invalid {part} of a header: expected visible characters, got {got}",
    ),
    (
        r"continuation line at start of headers",
        "invalid header: expected NAME: VALUE, got a line that begins with a space",
    ),
    (rf"illegal chunk header: {_QUOTE}", "invalid chunk: expected its length in hexadecimal digits, got {got}"),
    (
        rf"malformed chunk footer: {_QUOTE} \(expected .*\)",
        "invalid chunk: expected the end of a line after its data, got {got}",
    ),
    (r"bad Content-Length", "invalid Content-Length: expected a number of bytes, got something else"),
    (r"conflicting Content-Length headers", "invalid Content-Length: expected one number, got several"),
    (r"multiple Transfer-Encoding headers", "invalid Transfer-Encoding: expected it once, got it several times"),
    (
        r"Only Transfer-Encoding: chunked is supported",
        "invalid Transfer-Encoding: expected chunked, got another coding",
    ),
    (
        r"Received server _SWITCH_UPGRADE event without a pending proposal",
        "invalid status: expected an answer, got 101 (Switching Protocols), which the request did not ask for",
    ),
    (r"Receive buffer too long", "invalid headers: expected at most 100 KiB, got more"),
)
_SENTENCES = tuple((re.compile(pattern, re.DOTALL), sentence) for pattern, sentence in _TABLE)


def describe_protocol_error(text: str) -> str:
    """Return the sentence for an error of h11 or httpcore; a text that is in no table stays."""
    for pattern, sentence in _SENTENCES:
        if found := pattern.fullmatch(text):
            parts = found.groupdict()
            return sentence.format(got=_shown(parts.get("got") or "b''"), part=parts.get("part"))
    return text


def describe_first_bytes(text: str, unread: bytes) -> str:
    """Return the sentence for an error before the headers. `unread`: what has arrived and is no header."""
    if text not in _WITHOUT_STATUS_LINE or not unread or unread.startswith(b"HTTP/1."):
        return text
    if unread.startswith(_TLS_RECORDS):
        return "this port speaks TLS: use https://"
    return f"{_STATUS_LINE}{_shown_bytes(unread)}"


def _shown(literal: str) -> str:
    value: object = ast.literal_eval(literal)
    return _shown_bytes(value) if isinstance(value, bytes) else literal


def _shown_bytes(value: bytes) -> str:
    """Return the first line in quotes, with escapes for what is not ASCII."""
    return ascii(next((line for line in value.splitlines() if line), b"").decode("latin-1"))
