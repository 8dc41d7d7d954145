#!/usr/bin/env bash
# The suite against a real router of SGLang: set it up, start it before a scripted worker, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18600}
# shellcheck source=engines/sglang-router/common.sh
source "$HERE/common.sh"
check_release
export ROUTER
LOG=$HOME_OF_ROUTER/run.log
MAKE_TARGET=engine-sglang-router
# shellcheck disable=SC2034 # run_suite.sh reads these
ENGINE=openai MODEL=gpt-oss-teleprompter HEALTH=v1/models
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

# left out: what depends on the engine, since a scripted worker enforces no grammar
run_suite "${OUT:-reports/$ROUTER}" --engine "smg ${ROUTER##*-}" --api all --script teleprompter --latency 0 --skip 'structured.*' "$@"
