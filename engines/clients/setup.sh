#!/usr/bin/env bash
# Builds .engines/clients from nothing: the clients that are recorded. Runs again in a second: what is there and right stays.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
PYTHON=${PYTHON:-python3}
# no package runs a script when it is installed; the binaries are in packages of their own
NPM_PACKAGES=(@openai/codex@0.169.0 @anthropic-ai/claude-code@2.1.331 opencode-ai@1.18.33 ai@7.0.173 @ai-sdk/openai-compatible@3.0.92)

say() { printf 'record-clients: %s\n' "$*" >&2; }

install_npm() {
  [[ -f npm/installed && $(<npm/installed) == "${NPM_PACKAGES[*]}" ]] && return
  say "npm: ${NPM_PACKAGES[*]} (600 MB)"
  rm -rf npm
  mkdir npm
  echo '{"private": true}' > npm/package.json
  (cd npm && npm install --silent --no-audit --no-fund --ignore-scripts "${NPM_PACKAGES[@]}")
  echo "${NPM_PACKAGES[*]}" > npm/installed
}

install_python() {
  cmp -s "$HERE/requirements.lock" venv/installed.lock && return
  say "PyPI: openai-agents, langchain-openai"
  rm -rf venv
  "$PYTHON" -m venv venv
  venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$HERE/requirements.lock"
  cp "$HERE/requirements.lock" venv/installed.lock
}

mkdir -p "$ROOT/.engines/clients"
cd "$ROOT/.engines/clients"
install_npm
install_python
