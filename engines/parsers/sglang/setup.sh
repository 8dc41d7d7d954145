#!/usr/bin/env bash
# Builds .engines/parsers/sglang from nothing: SGLang without its scheduler, and the files of a gpt-oss model.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MAKE_TARGET=engine-parsers-sglang
# shellcheck source=engines/parsers/common.sh
source "$HERE/../common.sh"

enter sglang
skip_if_unavailable
install_locked "$HERE" "sglang and torch (6 GB on disk; minutes with an empty cache)"
install_model
say "ready: engines/parsers/sglang/serve.sh"
