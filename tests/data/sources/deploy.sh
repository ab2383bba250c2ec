#!/bin/bash
# Deploys.
set -euo pipefail
. ./common.sh
source "$(dirname "$0")/lib/log.sh"
source /etc/profile
readonly LIMIT=10
export TARGET="web"
count=0

usage() {
  echo "usage"
}

function deploy {
  local inner=1
  . lib/late.sh
}

_private() { :; }
if [ -n "${DEBUG:-}" ]; then
  debug() { echo "$@"; }
fi
