#!/usr/bin/env bash
# The suite against a real vLLM server: set it up, start it, run, stop it. Exits with the suite's code. VLLM=0.11.0: against that release.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18400}
LOG=$ROOT/.engines/vllm${VLLM:+-$VLLM}/run.log
MAKE_TARGET=engine-vllm
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

# measured last, when a wrong request has ended an old release already
[[ -z ${VLLM:-} ]] || set -- --latency 0 "$@"
# weights at random, under a grammar, spell the markers of a header in ordinary tokens: `messages_parameters` asks for a schema without a script
run_suite "${OUT:-reports/vllm-${VLLM:-0.32.0}}" --script vllm --skip channels.no_marker_leak@messages_parameters "$@"
