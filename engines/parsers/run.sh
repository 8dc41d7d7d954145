#!/usr/bin/env bash
# The suite against a real server whose engine is scripted: set it up, start it, run, stop it. Exits with the suite's code.
# usage: run.sh sglang|dynamo|vllm-rs|lmdeploy ARGUMENTS of `run`
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LANE=engine-parsers-$1
HERE=$ROOT/engines/parsers/$1
LOG=$ROOT/.engines/parsers/$1/run.log
MODEL=gpt-oss-teleprompter
# shellcheck disable=SC2034 # run_lane.sh reads it
HEALTH=v1/models
case $1 in
  sglang) ENGINE=sglang RELEASE='sglang 0.5.23' PORT=${PORT:-18560} ;;
  dynamo) HEALTH=v1/models/$MODEL ENGINE=openai RELEASE='dynamo 1.6.1' PORT=${PORT:-18570} ;;
  vllm-rs) ENGINE=vllm RELEASE='vllm-rs 0.33.0' PORT=${PORT:-18580} ;;
  lmdeploy) ENGINE=openai RELEASE='lmdeploy 0.18.0' PORT=${PORT:-18590} ;;
esac
shift
export PORT
# shellcheck source=engines/run_lane.sh
source "$ROOT/engines/run_lane.sh"

# A scripted engine enforces no grammar, so whether an answer has the form that a request wants is not judged.
run_lane "${OUT:-reports/${RELEASE/ /-parsers-}}" --engine "$RELEASE" --script teleprompter --latency 0 --skip "structured.*" "$@"
