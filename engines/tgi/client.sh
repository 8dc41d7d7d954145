#!/usr/bin/env bash
# huggingface_hub against a real TGI: set it up, start it, ask, stop it. Exits with 0 if every answer is the expected one, or if there is no router.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18480}
LOG=$ROOT/.engines/tgi/client.log
MAKE_TARGET=engine-tgi-client
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"
# shellcheck source=engines/tgi/router.sh
source "$HERE/router.sh"

if healthy; then
  echo "$MAKE_TARGET: something already answers on port $PORT; stop it or set PORT" >&2
  exit 2
fi
"$HERE/setup.sh"
cd "$ROOT/.engines/tgi"
if ! cmp -s "$HERE/client.lock" client/installed.lock; then
  echo "$MAKE_TARGET: huggingface_hub (70 MB on disk)" >&2
  rm -rf client
  "${PYTHON:-python3}" -m venv client
  client/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$HERE/client.lock"
  cp "$HERE/client.lock" client/installed.lock
fi
trap stop EXIT
trap 'exit 130' INT TERM
start "$HERE/serve.sh"
PYTHONPATH=$ROOT/conformance:$ROOT/harmony_ref PYTHONDONTWRITEBYTECODE=1 HF_HUB_DISABLE_TELEMETRY=1 \
  client/bin/python "$HERE/client.py" "http://127.0.0.1:$PORT"
