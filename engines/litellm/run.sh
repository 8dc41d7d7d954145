#!/usr/bin/env bash
# The suite against a real LiteLLM before the reference server: set it up, and for each API behind start it, run, stop it. BEHIND=chat runs one.
# Exits with the highest code of the suite, 3 if there was no server to test.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18460}
LOG=$ROOT/.engines/litellm/run-$PORT.log
MAKE_TARGET=engine-litellm
ENGINE=litellm
MODEL=gpt-oss-reference
# shellcheck disable=SC2034 # run_suite.sh reads it
HEALTH=health/liveliness
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

# what a gateway never sees: the tokens that the server behind it parses; and a prompt that it does not translate
SKIP=(--skip 'rows_*' --skip 'broken_*' --skip call_header_forms --skip 'completions_*')
# what Messages cannot carry, and the server behind the gateway changes: arguments that are no JSON object, or that have numbers beyond floats
OF_THE_SERVER=(
  channels.content_is_the_answer@arguments_as_written
  responses.calls_of_tools_are_items@responses_agent_tools
  tool_calls.calls_arrive@{arguments_as_written,cut_in_arguments,empty_arguments_replayed,json_beyond_parsers,json_to_the_letter}
)

code=0
began=$(date +%s)
for BEHIND in ${BEHIND:-chat responses messages}; do
  export BEHIND
  skip=("${SKIP[@]}")
  if [[ $BEHIND == messages ]]; then
    for pair in "${OF_THE_SERVER[@]}"; do skip+=(--skip "$pair"); done
  fi
  (run_suite "${OUT:-reports}/litellm-1.106.12-before-$BEHIND" --api all --engine 'litellm 1.106.12' --script reference --concurrency 4 --latency 0 \
    "${skip[@]}" "$@") || {
    one=$?
    ((one <= code)) || code=$one
  }
done
printf '%s: %d s, %s of environment\n' "$MAKE_TARGET" "$(($(date +%s) - began))" "$(du -sh "$ROOT/.engines/litellm/venv" | cut -f1)"
exit "$code"
