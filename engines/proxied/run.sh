#!/usr/bin/env bash
# The proxy before a real server: `run.sh vllm` or `run.sh llama-cpp`. Sets the server up, starts it, asks it straight and through each shell, stops it.
# Exits with 1 where an observing shell changed what a client is told, or where exchanges are missing from its log.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
LANE=engine-proxied
case "${1:-}" in
  vllm) ENGINE=vllm MODEL=gpt-oss-tiny SCRIPT=vllm PORT=${PORT:-18400} ;;
  llama-cpp) ENGINE=llamacpp MODEL=gpt-oss-teleprompter SCRIPT=teleprompter PORT=${PORT:-18420} ;;
  *) echo "usage: $0 vllm|llama-cpp" >&2; exit 2 ;;
esac
export PORT
LOG=$ROOT/.engines/$1/proxied.log
SERVER=$ROOT/engines/$1
# shellcheck source=engines/run_lane.sh
source "$HERE/../run_lane.sh"

cd "$ROOT"
"$SERVER/setup.sh" || exit 3
trap stop EXIT
trap 'exit 130' INT TERM
inside=()
watched=()
if [[ $1 == vllm ]]; then # the guard as vLLM's own middleware, in the same process; it observes, so what is asked straight is the same
  export HARMONY_GUARD_LOG=$ROOT/.engines/vllm/guard.jsonl
  rm -f "$HARMONY_GUARD_LOG"
  inside=(--middleware harmony_proxy.asgi.HarmonyGuard)
  watched=(--watched-log "$HARMONY_GUARD_LOG")
fi
"$SERVER/serve.sh" ${inside[@]+"${inside[@]}"} > "$LOG" 2>&1 &
server=$!
SECONDS=0
until healthy; do
  kill -0 "$server" 2>/dev/null || give_up "the server died"
  ((SECONDS < PATIENCE)) || give_up "the server was not up after $PATIENCE s"
  sleep 1
done
.venv/bin/python "$HERE/through.py" "$ENGINE:http://127.0.0.1:$PORT/v1" --model "$MODEL" --script "$SCRIPT" ${watched[@]+"${watched[@]}"}
