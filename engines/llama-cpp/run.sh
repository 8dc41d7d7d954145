#!/usr/bin/env bash
# The suite against a real llama.cpp server: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18420} BUILD=${BUILD:-}
LOG=$ROOT/.engines/llama-cpp/run.log
MAKE_TARGET=engine-llama-cpp
ENGINE=llamacpp
MODEL=gpt-oss-teleprompter
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

# top_k: else a token that a grammar is asked about costs a look at all 201088
run_suite "${OUT:-reports/llama.cpp-${BUILD:-b11549}}" --engine "llamacpp ${BUILD:-b11549}" --script teleprompter --concurrency 4 --extra-body '{"top_k": 1}' "$@"
