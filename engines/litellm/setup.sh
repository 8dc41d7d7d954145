#!/usr/bin/env bash
# Builds .engines/litellm from nothing: the LiteLLM proxy. Runs again in a second: what is there and right stays.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
# shellcheck disable=SC2034 # environment.sh reads it
MAKE_TARGET=engine-litellm
# shellcheck source=engines/environment.sh
source "$HERE/../environment.sh"

mkdir -p "$ROOT/.engines/litellm"
cd "$ROOT/.engines/litellm"
install_uv
if ! cmp -s "$HERE/requirements.lock" venv/installed.lock; then
  say "litellm (600 MB on disk)"
  rm -rf venv
  uv/bin/uv venv --quiet --python 3.11 venv
  uv_pip install --compile-bytecode --require-hashes --requirements "$HERE/requirements.lock"
  cp "$HERE/requirements.lock" venv/installed.lock
fi
say "ready, $(du -sh venv | cut -f1): engines/litellm/serve.sh"
