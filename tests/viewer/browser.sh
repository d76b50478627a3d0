#!/usr/bin/env bash
# Install Chromium for the viewer's tests if it is missing (Debian, as root).
set -euo pipefail

refuse() { echo "tests/viewer/browser.sh: $*" >&2; exit 1; }
if command -v chromium >/dev/null; then exit 0; fi
[ "$(id -u)" = 0 ] || refuse "found no chromium; expected chromium, or root to install it."
command -v apt-get >/dev/null || refuse "found neither chromium nor apt-get; expected one of them. Install chromium."
log="$(mktemp)"
export DEBIAN_FRONTEND=noninteractive
# Package lists may be absent (a fresh image) or fresh but unreachable: only the installation must succeed.
{ apt-get update -qq || true; apt-get install -y -qq --no-install-recommends chromium; } >"$log" 2>&1 ||
  { tail -5 "$log" >&2; refuse "cannot install chromium; expected a package source with it. See the lines above."; }
rm -f "$log"
