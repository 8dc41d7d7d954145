#!/usr/bin/env bash
# The suite against a real vLLM server: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18400}
LOG=$ROOT/.engines/vllm/run.log
PATIENCE=300 # seconds; 35 to 75 on two cores
server=

# shellcheck disable=SC2329 # the trap calls it
stop() {
  [[ -n $server ]] || return 0
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
}

give_up() {
  printf 'engine-vllm: %s; the end of %s:\n' "$1" "$LOG" >&2
  tail -n 40 "$LOG" >&2
  exit 3
}

healthy() { curl --silent --fail --output /dev/null --max-time 5 "http://127.0.0.1:$PORT/health"; }

cd "$ROOT"
if healthy; then
  echo "engine-vllm: something already answers on port $PORT; stop it or set PORT" >&2
  exit 2
fi
"$HERE/setup.sh" || exit 3

trap stop EXIT
trap 'exit 130' INT TERM
"$HERE/serve.sh" > "$LOG" 2>&1 &
server=$!
SECONDS=0
until healthy; do
  kill -0 "$server" 2>/dev/null || give_up "the server died"
  ((SECONDS < PATIENCE)) || give_up "the server was not up after $PATIENCE s"
  sleep 1
done

code=0
.venv/bin/harmony-conformance run "vllm:http://127.0.0.1:$PORT/v1" --model gpt-oss-tiny --script vllm \
  --out "${OUT:-reports/vllm-0.32.0}" "$@" || code=$?
exit "$code"
