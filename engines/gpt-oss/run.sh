#!/usr/bin/env bash
# The suite against gpt-oss's own Responses server: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18440}
LOG=$ROOT/.engines/gpt-oss/run.log
LANE=engine-gpt-oss
ENGINE=openai
MODEL=gpt-oss-120b
# shellcheck disable=SC2034 # run_lane.sh reads it
HEALTH=openapi.json
# shellcheck source=engines/run_lane.sh
source "$HERE/../run_lane.sh"

run_lane "${OUT:-reports/gpt-oss-0.0.9-responses}" --api responses --engine 'gpt-oss 0.0.9' --script teleprompter --concurrency 4 --latency 0 "$@"
