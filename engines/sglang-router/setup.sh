#!/usr/bin/env bash
# Builds .engines/sglang-router from nothing: the router, the protocol between it and its workers, and the files of a gpt-oss model.
# ROUTER=smg-1.13.0 is its successor. Runs again in a second: what is there and right stays.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
MAKE_TARGET=engine-sglang-router
# shellcheck source=engines/environment.sh
source "$HERE/../environment.sh"
# shellcheck source=engines/template.sh
source "$HERE/../template.sh"
# shellcheck source=engines/sglang-router/common.sh
source "$HERE/common.sh"

install_router() {
  if cmp -s "$HERE/$ROUTER.lock" venv/installed.lock; then return; fi
  say "$ROUTER (0.2 GB on disk)"
  rm -rf venv
  "$PYTHON" -m venv venv
  venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$HERE/$ROUTER.lock"
  cp "$HERE/$ROUTER.lock" venv/installed.lock
}

# What the router reads of a model. Its own Harmony code looks for the vocabulary in a folder, or else loads it from the network.
install_model() {
  install_tokenizer
  install_template
  cp "$TEMPLATE" model/chat_template.jinja
  cp "$HERE/../vllm/checkpoint/config.json" "$HERE/../vllm/checkpoint/generation_config.json" model/
  [[ -f vocabulary/o200k_base.tiktoken ]] && return
  mkdir -p vocabulary
  "$ROOT/.venv/bin/python" "$ROOT/engines/gpt-oss/vocabulary.py" > vocabulary/new
  mv vocabulary/new vocabulary/o200k_base.tiktoken
}

check_release
mkdir -p "$HOME_OF_ROUTER"
cd "$HOME_OF_ROUTER"
install_router
install_model
say "ready: engines/sglang-router/serve.sh"
