#!/usr/bin/env bash
# Starts a SLURM of two pretend nodes with two pretend GPUs each on this Debian machine (as root), for the tests of the
# cluster path. Safe to run twice, and after a crash or a restart of the machine; a SLURM that answers is left alone, and a
# configuration of others is too.
set -euo pipefail

conf=/etc/slurm/slurm.conf
ours() { grep -qs '^ClusterName=proofmill$' $conf; }
# A client waits half a minute for a controller that is not there.
working() { timeout 5 sinfo --noheader --Node --format=%T 2>/dev/null | grep -Ec '^(idle|mixed|allocated|completing)$'; }
alive() {
  local pid
  pid="$(cat "/run/slurm/$1.pid" 2>/dev/null)" && kill -0 "$pid" 2>/dev/null && grep -q slurmd "/proc/$pid/comm"
}
answers() {
  if ours; then [ "$(working)" = 2 ] && alive node1 && alive node2; else [ "$(working)" != 0 ]; fi
}
refuse() { echo "tests/pipeline/slurm.sh: $*" >&2; exit 1; }

if answers; then exit 0; fi
[ "$(id -u)" = 0 ] || refuse "found no SLURM that answers sinfo; expected one, or root to start one. Run it as root."
here="$(cd "$(dirname "$0")" && pwd)"
if [ -e $conf ] && ! ours; then
  refuse "$conf is not ours and its SLURM has no node that works; expected none, or one that answers. Nothing was changed."
fi

missing() { ! command -v slurmctld || ! command -v slurmd || ! command -v munged; }
if missing >/dev/null; then
  command -v apt-get >/dev/null || refuse "found neither SLURM nor apt-get; expected Debian, or slurm-wlm and munge installed."
  log="$(mktemp)"
  export DEBIAN_FRONTEND=noninteractive
  # Package lists may be absent (a fresh image) or fresh but unreachable (no network): only the installation must succeed.
  { apt-get update -qq || true; apt-get install -y -qq --no-install-recommends slurm-wlm munge; } >"$log" 2>&1 ||
    { tail -5 "$log" >&2; refuse "slurm-wlm and munge cannot be installed; expected a package source that has them."; }
  rm -f "$log"
fi

mkdir -p /etc/slurm /run/munge /run/slurm /var/lib/slurm/{slurmctld,node1,node2} /var/log/slurm /var/log/munge
memory=$(( $(awk '/MemTotal/ {print $2}' /proc/meminfo) / 1024 * 9 / 10 / 2 ))
sed -e "s/@CPUS@/$((2 * $(nproc)))/" -e "s/@MEMORY@/$memory/" "$here/slurm.conf" >$conf.new
mv $conf.new $conf
cp "$here/gres.conf" /etc/slurm/gres.conf
# SLURM numbers GPUs by their devices and takes no plain files: these are what /dev/null is.
for gpu in /var/lib/slurm/gpu{0,1}; do [ -c $gpu ] || { rm -f $gpu; mknod $gpu c 1 3; }; done

[ -s /etc/munge/munge.key ] || { mkdir -p /etc/munge; dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 status=none; }
chown munge:munge /etc/munge /etc/munge/munge.key /run/munge /var/log/munge
chmod 700 /etc/munge
chmod 400 /etc/munge/munge.key
chmod 755 /run/munge
# --force: a socket that a crash left behind is no munged.
munge --no-input 2>/dev/null | unmunge >/dev/null 2>&1 || runuser -u munge -- munged --force >/dev/null 2>&1
# -c: jobs of before a crash hold their memory for ever.
timeout 5 scontrol ping 2>/dev/null | grep -q 'is UP' || slurmctld -c
for node in node1 node2; do alive $node || slurmd -N $node; done

SECONDS=0
while [ $SECONDS -lt 40 ]; do
  if answers; then exit 0; fi
  # A node that was lost (a restart, other sizes) is taken up again as soon as it reports.
  timeout 5 scontrol update NodeName=node[1-2] State=RESUME >/dev/null 2>&1 || true
  sleep 0.5
done
tail -n 3 /var/log/slurm/*.log >&2 || true
refuse "SLURM was started and its nodes are not ready after 40 s; expected two. See /var/log/slurm."
