"""Keys of a policy file, and variables of the environment."""

from __future__ import annotations

from harmony_conformance.runtime.file_keys import FileKey

CHECKS = "[checks]"
ROUTE = "[[route]]"
_FAIL = "`open`, `closed`"
_FALLBACK = "`observe`, `block`"
_ACTIONS = "`observe`, `repair`, `block`"
_CONTENT = "`none`, `redacted`, `full`"
_PATTERNS = "patterns of check ids, separated by commas"

KEYS = (
    FileKey(
        name="fail",
        kind=_FAIL,
        meaning="Whether a response that cannot be examined passes (`open`) or is blocked (`closed`).",
        example='fail = "closed"',
        default="`open`",
    ),
    FileKey(
        name="fallback",
        kind=_FALLBACK,
        meaning="What happens to a response that cannot be repaired.",
        example='fallback = "block"',
        default="`observe`",
    ),
    FileKey(
        name="reasoning_field",
        kind="`reasoning`, `reasoning_content`",
        meaning="Name of the reasoning field in repaired responses.",
        example='reasoning_field = "reasoning"',
        default="the name that the server uses",
    ),
    FileKey(
        name="memory_limit",
        kind="bytes, or a number with `K`, `M` or `G`",
        meaning="Memory of all exchanges in flight together.",
        example='memory_limit = "256M"',
        default="`256M`",
    ),
    FileKey(
        table=CHECKS,
        name='"PATTERN"',
        kind=_ACTIONS,
        meaning="Action on a failure of the MUST checks that match the pattern. The longest matching pattern applies.",
        example='"channels.no_marker_leak" = "repair"',
        default="`observe`",
    ),
    FileKey(
        table=ROUTE,
        name="path",
        kind="pattern",
        meaning="Paths of the route. The first route that matches applies.",
        example='path = "*/chat/completions"',
        default="`*`",
    ),
    FileKey(
        table=ROUTE,
        name="fail",
        kind=_FAIL,
        meaning="As at the top of the file, for this route.",
        example='fail = "closed"',
        default="that of the top of the file",
    ),
    FileKey(
        table=ROUTE,
        name="fallback",
        kind=_FALLBACK,
        meaning="As at the top of the file, for this route.",
        example='fallback = "block"',
        default="that of the top of the file",
    ),
    FileKey(
        table=ROUTE,
        name="checks",
        kind="table of patterns and actions",
        meaning="Replaces `[checks]` for this route.",
        example='checks = {"*" = "observe"}',
        default="every check is observed",
    ),
)
"""Keys of a policy file."""

VARIABLES = (
    FileKey(name="POLICY", kind="file", meaning="A policy file in TOML.", example="/etc/harmony/policy.toml"),
    FileKey(
        name="REPAIR",
        kind=_PATTERNS,
        meaning="Checks whose failures are repaired. Not with a policy file.",
        example="channels.no_marker_leak",
    ),
    FileKey(
        name="BLOCK",
        kind=_PATTERNS,
        meaning="Checks whose failures are blocked. Not with a policy file.",
        example="tool_calls.*",
    ),
    FileKey(name="FAIL", kind=_FAIL, meaning="As `fail` in a policy file.", example="closed", default="`open`"),
    FileKey(
        name="FALLBACK",
        kind=_FALLBACK,
        meaning="As `fallback` in a policy file.",
        example="block",
        default="`observe`",
    ),
    FileKey(
        name="REASONING_FIELD",
        kind="`reasoning`, `reasoning_content`",
        meaning="As `reasoning_field` in a policy file.",
        example="reasoning",
    ),
    FileKey(
        name="MEMORY_LIMIT",
        kind="bytes, or a number with `K`, `M` or `G`",
        meaning="Memory of all exchanges in flight together.",
        example="512M",
        default="`256M`",
    ),
    FileKey(
        name="LOG",
        kind="file",
        meaning="The outcome log; a line is appended for each exchange.",
        example="outcomes.jsonl",
    ),
    FileKey(
        name="EXCERPTS",
        kind=_CONTENT,
        meaning="Traffic that the log quotes in its findings.",
        example="redacted",
        default="`none`",
    ),
    FileKey(
        name="CAPTURE",
        kind=_CONTENT,
        meaning="Samples of failing exchanges, and before and after of repairs, in the log.",
        example="redacted",
        default="`none`",
    ),
    FileKey(
        name="METRICS",
        kind="HOST:PORT",
        meaning="Address of the Prometheus metrics and of the live page.",
        example="127.0.0.1:9464",
    ),
    FileKey(
        name="OTEL",
        kind="URL",
        meaning="An OTLP/HTTP receiver for spans and metrics of OpenTelemetry.",
        example="http://127.0.0.1:4318",
    ),
    FileKey(
        name="OTEL_CONTENT",
        kind=_CONTENT,
        meaning="Messages in the spans.",
        example="redacted",
        default="`none`",
    ),
    FileKey(
        name="ENGINE",
        kind="name",
        meaning="Engine of the server, as in `ENGINE:URL` of `run`.",
        example="vllm",
        default="`openai`",
    ),
    FileKey(
        name="PRIORITY",
        kind="`low`, `normal`",
        meaning="CPU priority of the judge process.",
        example="normal",
        default="`low`",
    ),
)
"""Variables of the environment, without their prefix `HARMONY_GUARD_`."""
