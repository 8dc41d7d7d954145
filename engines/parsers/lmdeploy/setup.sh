#!/usr/bin/env bash
# Builds .engines/parsers/lmdeploy from nothing: LMDeploy without its engine, and the files of a gpt-oss model.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MAKE_TARGET=engine-parsers-lmdeploy
# shellcheck source=engines/parsers/common.sh
source "$HERE/../common.sh"

enter lmdeploy
skip_if_unavailable
install_locked "$HERE" "lmdeploy and torch (5 GB on disk; minutes with an empty cache)"
install_model
install_vocabulary
say "ready: engines/parsers/lmdeploy/serve.sh"
