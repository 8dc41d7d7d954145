#!/usr/bin/env bash
# The suite against the rendering and the parsing of a real vLLM: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18402}
LOG=$ROOT/.engines/vllm-render/run.log
MAKE_TARGET=engine-vllm-render
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

run_suite "${OUT:-reports/vllm-0.33.0-render}" --script derender "$@"
