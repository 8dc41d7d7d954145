#!/usr/bin/env bash
# The suite against a real Ollama: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18450} OLLAMA=${OLLAMA:-0.34.4}
LOG=$ROOT/.engines/ollama/run.log
LANE=engine-ollama
ENGINE=ollama
MODEL=gpt-oss-teleprompter
# shellcheck disable=SC2034 # run_lane.sh reads it
HEALTH=api/version
# shellcheck source=engines/run_lane.sh
source "$HERE/../run_lane.sh"

run_lane "${OUT:-reports/ollama-$OLLAMA}" --engine "ollama $OLLAMA" --api all --script teleprompter --concurrency 4 --latency 0 "$@"
