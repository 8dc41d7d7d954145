#!/usr/bin/env bash
# huggingface_hub against a real TGI: set it up, start it, ask, stop it. Exits with 0 if every answer is the expected one.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18480}
LOG=$ROOT/.engines/tgi/client.log
LANE=engine-tgi-client
# shellcheck source=engines/run_lane.sh
source "$HERE/../run_lane.sh"
# shellcheck source=engines/tgi/router.sh
source "$HERE/router.sh"

"$HERE/setup.sh"
trap stop EXIT
start "$HERE/serve.sh"
PYTHONPATH=$ROOT/conformance:$ROOT/harmony_ref PYTHONDONTWRITEBYTECODE=1 HF_HUB_DISABLE_TELEMETRY=1 \
  "$ROOT/.engines/tgi/venv/bin/python" "$HERE/client.py" "http://127.0.0.1:$PORT"
