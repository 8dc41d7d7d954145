#!/usr/bin/env bash
# Builds .engines/vllm-render from nothing: the official build of vLLM, and the files of a gpt-oss model. Only the part
# that reads and writes Harmony runs. Runs again in seconds: what is there and right stays.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
HOME_OF_VLLM=$ROOT/.engines/vllm-render
MAKE_TARGET=engine-vllm-render
# shellcheck source=engines/environment.sh
source "$HERE/../environment.sh"

mkdir -p "$HOME_OF_VLLM"
cd "$HOME_OF_VLLM"
install_uv
install_locked "$HERE" "vllm (6 GB on disk with the torch of PyPI; minutes with an empty cache)"
install_tokenizer
cp "$HERE/../vllm/checkpoint/config.json" "$HERE/../vllm/checkpoint/generation_config.json" model/
say "ready: engines/vllm-render/serve.sh"
