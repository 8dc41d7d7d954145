#!/usr/bin/env bash
# Serves TGI's router with the scripted shard on 127.0.0.1:${PORT:-18480} in the foreground; metrics on the next port. TGI_ROUTER is another binary.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
cd "$ROOT/.engines/tgi"
PORT=${PORT:-18480}
ROUTER=${TGI_ROUTER:-./router}
[[ -x $ROUTER ]] || {
  echo "engine-tgi: no router: expected a program, got $ROUTER; set TGI_ROUTER as for setup.sh, see engines/tgi/README.md" >&2
  exit 2
}
SOCKETS=$(mktemp -d)
processes=()

# shellcheck disable=SC2329 # the trap calls it
stop() {
  kill "${processes[@]}" 2>/dev/null || true
  wait || true
  rm -rf "$SOCKETS"
}
trap stop EXIT
trap 'exit 143' INT TERM

PYTHONPATH=$ROOT/conformance:$ROOT/harmony_ref:$HERE:$PWD/protocol PYTHONDONTWRITEBYTECODE=1 \
  venv/bin/python "$HERE/shard.py" "$SOCKETS/shard" gpt-oss-teleprompter/tokenizer.json &
processes+=($!)
until [[ -S $SOCKETS/shard ]]; do
  kill -0 "${processes[0]}"
  sleep 0.1
done

if [[ -f libraries ]]; then
  LD_LIBRARY_PATH=$(<libraries)
  export LD_LIBRARY_PATH
fi
export HF_HUB_OFFLINE=1 RUST_LOG=${RUST_LOG:-warn} NO_COLOR=1
"$ROUTER" --hostname 127.0.0.1 --port "$PORT" --prometheus-port "$((PORT + 1))" --usage-stats off \
  --tokenizer-name gpt-oss-teleprompter --master-shard-uds-path "$SOCKETS/shard" --max-batch-prefill-tokens 131072 &
processes+=($!)
wait -n
