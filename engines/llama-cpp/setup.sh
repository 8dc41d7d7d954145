#!/usr/bin/env bash
# Builds .engines/llama-cpp from nothing: the llama.cpp server that xllamacpp carries, gpt-oss's chat template, the
# teleprompter. Runs again in a second: what is there and right stays. BUILD=b7551 is the build that b7551.lock names.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
HOME_OF_LLAMA=$ROOT/.engines/llama-cpp
PYTHON=${PYTHON:-python3}
VENV=venv${BUILD:+-$BUILD}
LOCK=$HERE/${BUILD:-requirements}.lock

say() { printf 'engine-llama-cpp: %s\n' "$*" >&2; }
# shellcheck source=engines/template.sh
source "$HERE/../template.sh"
pip() { "$VENV/bin/python" -m pip "$@" --quiet --disable-pip-version-check; }

install_server() {
  if cmp -s "$LOCK" "$VENV/installed.lock"; then return; fi
  say "xllamacpp (34 MB)"
  rm -rf "$VENV"
  "$PYTHON" -m venv "$VENV"
  pip install --require-hashes --requirement "$LOCK"
  cp "$LOCK" "$VENV/installed.lock"
}

# Made again when its sources have changed.
install_model() {
  local made_of
  made_of=$(cat "$ROOT"/conformance/harmony_conformance/engines/teleprompter/*.py "$TEMPLATE" | sha256sum)
  if [[ -f model/teleprompter.gguf && -f model/made_of && $(<model/made_of) == "$made_of" ]]; then return; fi
  say "teleprompter (65 MB)"
  rm -rf model
  "$ROOT/.venv/bin/harmony-conformance" teleprompter build model --format gguf --chat-template "$TEMPLATE" >&2
  echo "$made_of" > model/made_of
}

mkdir -p "$HOME_OF_LLAMA"
cd "$HOME_OF_LLAMA"
install_server
install_template
install_model
say "ready: engines/llama-cpp/serve.sh"
