#!/usr/bin/env bash
# The suite against gpt-oss's own Responses server: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18440}
LOG=$ROOT/.engines/gpt-oss/run.log
MAKE_TARGET=engine-gpt-oss
ENGINE=openai
MODEL=gpt-oss-120b
# shellcheck disable=SC2034 # run_suite.sh reads it
HEALTH=openapi.json
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

run_suite "${OUT:-reports/gpt-oss-0.0.9-responses}" --api responses --engine 'gpt-oss 0.0.9' --script teleprompter --concurrency 4 --latency 0 "$@"
