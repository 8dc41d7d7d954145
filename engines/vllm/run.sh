#!/usr/bin/env bash
# The suite against a real vLLM server: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18400}
LOG=$ROOT/.engines/vllm/run.log
LANE=engine-vllm
# shellcheck source=engines/run_lane.sh
source "$HERE/../run_lane.sh"

run_lane "${OUT:-reports/vllm-0.32.0}" --script vllm "$@"
