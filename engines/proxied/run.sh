#!/usr/bin/env bash
# Run the proxy before a real server: `run.sh vllm` or `run.sh llama-cpp`. Starts the server, calls it directly and through each shell, and stops it.
# vLLM is restarted for each action of its middleware guard. Writes reports/proxied/; exits with 1 if a client received a wrong answer.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
MAKE_TARGET=engine-proxied
case "${1:-}" in
  vllm) ENGINE=vllm MODEL=gpt-oss-tiny SCRIPT=vllm PORT=${PORT:-18400} NAME=vllm-0.32.0 TITLE='vLLM 0.32.0' ;;
  llama-cpp) ENGINE=llamacpp MODEL=gpt-oss-teleprompter SCRIPT=teleprompter PORT=${PORT:-18420} NAME=llama.cpp-b11549 TITLE='llama.cpp b11549' ;;
  *) echo "usage: $0 vllm|llama-cpp" >&2; exit 2 ;;
esac
export PORT
LOG=$ROOT/.engines/$1/proxied.log
SERVER=$ROOT/engines/$1
KEPT=$ROOT/.engines/$1/proxied.json
OUT=${OUT:-reports/proxied}
export HARMONY_GUARD_LOG=$ROOT/.engines/$1/guard.jsonl
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

scripted() {
  .venv/bin/python "$HERE/scripted.py" ask "$ENGINE:http://127.0.0.1:$PORT/v1" --model "$MODEL" --by "$SCRIPT" --into "$KEPT" "$@"
}

rest() { # what the model says by itself, requests that are refused, a stream that is left, a part of the suite
  .venv/bin/python "$HERE/through.py" "$ENGINE:http://127.0.0.1:$PORT/v1" --model "$MODEL" --script "$SCRIPT" "$@"
}

# the guard as vLLM's own middleware, in the same process
within() {
  rm -f "$HARMONY_GUARD_LOG"
  start "$SERVER/serve.sh" --middleware harmony_proxy.asgi.HarmonyGuard
  scripted --within "within vLLM" "$1" --log "$HARMONY_GUARD_LOG"
}

cd "$ROOT"
if healthy; then
  echo "$MAKE_TARGET: something already answers on port $PORT; stop it or set PORT" >&2
  exit 2
fi
"$SERVER/setup.sh" || exit 3
trap stop EXIT
trap 'exit 130' INT TERM
code=0
start "$SERVER/serve.sh"
scripted --through standalone mitmproxy
if [[ $1 == vllm ]]; then
  stop
  HARMONY_GUARD_REPAIR='*' within repair
  stop
  HARMONY_GUARD_BLOCK=channels.no_marker_leak,channels.no_channel_words within block
  stop
  within observe
  rest --watched-log "$HARMONY_GUARD_LOG" || code=$? # it observes, so direct answers stay the same
else
  rest || code=$?
fi
stop
mkdir -p "$OUT"
.venv/bin/python "$HERE/scripted.py" page "$KEPT" "$OUT/$NAME.md" --server "$TITLE" || code=$?
exit "$code"
