# Ends the script, with one line and the code 0, where there is neither a router nor a way to compile one; sourced by run.sh and client.sh.
# shellcheck shell=bash
# Needs: MAKE_TARGET, which messages begin with; ROOT.

if [[ ! -x ${TGI_ROUTER:-$ROOT/.engines/tgi/router} ]] && { [[ -z ${TGI_SOURCE:-} ]] || ! command -v cargo > /dev/null; }; then
  echo "$MAKE_TARGET: skipped: no router; set TGI_ROUTER to a binary, or TGI_SOURCE to TGI's sources (with cargo); see engines/tgi/README.md" >&2
  exit 0
fi
