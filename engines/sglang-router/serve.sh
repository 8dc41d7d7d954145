#!/usr/bin/env bash
# Serves the router before a scripted worker on 127.0.0.1:${PORT:-18600} in the foreground; the worker and metrics on the next two ports.
# Further arguments go to the router.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
# shellcheck source=engines/sglang-router/common.sh
source "$HERE/common.sh"
check_release
cd "$HOME_OF_ROUTER"
PORT=${PORT:-18600}
WORKER=127.0.0.1:$((PORT + 1))
processes=()

# shellcheck disable=SC2329 # the trap calls it
stop() {
  kill "${processes[@]}" 2>/dev/null || true
  wait || true
}
trap stop EXIT
trap 'exit 143' INT TERM

PYTHONPATH=$ROOT/conformance:$ROOT/harmony_ref:$ROOT/engines/parsers PYTHONDONTWRITEBYTECODE=1 \
  venv/bin/python "$HERE/worker.py" "$WORKER" "$PWD/model" gpt-oss-teleprompter &
processes+=($!)

package=${ROUTER%-*}
TIKTOKEN_ENCODINGS_BASE=$PWD/vocabulary HF_HUB_OFFLINE=1 \
  venv/bin/python -m "${package//-/_}.launch_router" --host 127.0.0.1 --port "$PORT" --prometheus-host 127.0.0.1 --prometheus-port "$((PORT + 2))" \
  --worker-urls "grpc://$WORKER" --model-path "$PWD/model" --log-level warn "$@" &
processes+=($!)
wait -n
