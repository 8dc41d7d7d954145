# What setup.sh, serve.sh and run.sh of this setup share: the router and its release.
# shellcheck shell=bash
# Needs: HERE, this folder; ROOT.

ROUTER=${ROUTER:-sglang-router-0.3.2}
HOME_OF_ROUTER=$ROOT/.engines/sglang-router/$ROUTER

# Ends the script, with one line and the code 2, where there is no lock of the release.
check_release() {
  [[ -f $HERE/$ROUTER.lock ]] && return
  echo "engine-sglang-router: there is no setup for ${ROUTER@Q}: set ROUTER to one of $(cd "$HERE" && echo ./*.lock | sed 's/\.\/\|\.lock//g')" >&2
  exit 2
}
