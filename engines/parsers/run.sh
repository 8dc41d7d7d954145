#!/usr/bin/env bash
# The suite against a real server whose engine is scripted: set it up, start it, run, stop it. Exits with the suite's code.
# usage: run.sh sglang|dynamo|vllm-rs|lmdeploy ARGUMENTS of `run`
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
MAKE_TARGET=engine-parsers-$1
HERE=$ROOT/engines/parsers/$1
LOG=$ROOT/.engines/parsers/$1/run.log
MODEL=gpt-oss-teleprompter
# shellcheck disable=SC2034 # run_suite.sh reads it
HEALTH=v1/models
case $1 in
  sglang) ENGINE=sglang RELEASE='sglang 0.5.23' PORT=${PORT:-18560} ;;
  dynamo) HEALTH=v1/models/$MODEL ENGINE=openai RELEASE='dynamo 1.6.1' PORT=${PORT:-18570} ;;
  lmdeploy) ENGINE=openai RELEASE='lmdeploy 0.18.0' PORT=${PORT:-18590} ;;
  vllm-rs) ENGINE=vllm RELEASE='vllm-rs 0.33.0' PORT=${PORT:-18580} ;;
esac
ENGINE_NAME=$1
shift
export PORT
# shellcheck source=engines/run_suite.sh
source "$ROOT/engines/run_suite.sh"

# What shows renderer and parser. Left out is what depends on the engine: speed, load, sampling, and, since a scripted engine enforces no grammar, the form of
# answers. More scenarios may follow as arguments.
chosen=(--skip 'structured.*')
for scenario in 'rows_[abcnot]*' answer_about_harmony content_forms forbidden_call instructions json_beyond_parsers json_to_the_letter markers_in_the_request \
  odd_function_names parallel_results preamble_and_call preamble_in_history prompt_accounting results results_without_a_call \
  several_choices stop_strings tool_choice tool_round_trip tool_schemas two_calls_in_one_turn unknown_effort 'reasoning_by_*'; do
  chosen+=(--select "$scenario")
done
# Dynamo's scripted worker makes one choice. LMDeploy leaves stop strings to its engine.
case $ENGINE_NAME in
  dynamo) chosen+=(--skip several_choices --select '*_by_count') ;;
  lmdeploy) chosen+=(--skip stop_strings --select '*_by_count') ;;
esac
run_suite "${OUT:-reports/${RELEASE/ /-parsers-}}" --engine "$RELEASE" --script teleprompter --latency 0 "${chosen[@]}" "$@"
