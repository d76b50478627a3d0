#!/usr/bin/env bash
# Starts a SLURM of one node on this Debian machine (as root), for the tests of the cluster path. Safe to run twice.
set -euo pipefail
if sinfo >/dev/null 2>&1; then exit 0; fi
[ "$(id -u)" = 0 ] || { echo "starting a SLURM needs root" >&2; exit 1; }
if ! command -v slurmctld >/dev/null; then
  apt-get update -qq >/dev/null 2>&1 || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null 2>&1
fi
here="$(cd "$(dirname "$0")" && pwd)"
mkdir -p /etc/slurm /run/munge /run/slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
memory=$(( $(awk '/MemTotal/ {print $2}' /proc/meminfo) / 1024 * 9 / 10 ))
sed -e "s/@CPUS@/$(nproc)/" -e "s/@MEMORY@/$memory/" "$here/slurm.conf" > /etc/slurm/slurm.conf
[ -e /etc/munge/munge.key ] || { dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 status=none; }
chown munge:munge /run/munge /etc/munge/munge.key; chmod 400 /etc/munge/munge.key
pgrep -x munged >/dev/null || runuser -u munge -- munged
pgrep -x slurmctld >/dev/null || slurmctld
pgrep -x slurmd >/dev/null || slurmd
for _ in $(seq 30); do sinfo >/dev/null 2>&1 && exit 0; sleep 1; done
echo "SLURM was started and does not answer sinfo; see /var/log/slurm" >&2
exit 1
