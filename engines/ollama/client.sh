#!/usr/bin/env bash
# Ollama's official client for Python against a real Ollama: set it up, start it, ask, stop it. Exits with 0 if every answer is the expected one.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18450} OLLAMA=${OLLAMA:-0.34.4}
LOG=$ROOT/.engines/ollama/client.log
MAKE_TARGET=engine-ollama-client
# shellcheck disable=SC2034 # run_suite.sh reads it
HEALTH=api/version
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

"$HERE/setup.sh"
cd "$ROOT/.engines/ollama"
if ! cmp -s "$HERE/client.lock" client/installed.lock; then
  rm -rf client
  "${PYTHON:-python3}" -m venv client
  client/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$HERE/client.lock"
  cp "$HERE/client.lock" client/installed.lock
fi
trap stop EXIT
trap 'exit 130' INT TERM
start "$HERE/serve.sh"
PYTHONPATH=$ROOT/conformance:$ROOT/harmony_ref PYTHONDONTWRITEBYTECODE=1 \
  client/bin/python "$HERE/client.py" "http://127.0.0.1:$PORT" gpt-oss-teleprompter
