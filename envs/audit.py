"""Known vulnerabilities of what the locks pin, as pip-audit knows them from an advisory service.

`python envs/audit.py LOCK ...` fails for a package with a known vulnerability, for one that the service does not know,
and where no service answers; with `--where-at-hand` the last is said and is no failure. Other options are
pip-audit's (`--ignore-vuln=ID`). pip-audit itself calls a lock free of vulnerabilities whose packages it all
skipped, as where a mirror has packages and no advisories.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def audited(lock: Path, options: list[str]) -> list[dict[str, Any]]:
    """What pip-audit says of each package that a lock pins; nothing where no advisory service answers."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, lock.name)
        # An advisory is about a version, not about its build for CPUs.
        copy.write_text(lock.read_text(encoding="utf-8").replace("+cpu ", " "), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--format", "json", "--requirement", str(copy)]
        # It ends alike for a lock that it cannot read and a service that it cannot reach; this reads the lock only.
        read = subprocess.run([*command, *options, "--dry-run"], capture_output=True, text=True)
        if read.returncode:
            sys.exit(f"{lock}: pip-audit cannot read it; expected a lock that `make lock` made.\n{read.stderr}")
        asked = subprocess.run([*command, *options], capture_output=True, text=True)
    said = json.loads(asked.stdout)["dependencies"] if asked.stdout else []
    return [] if all("skip_reason" in package for package in said) else said


def faults(said: list[dict[str, Any]]) -> list[str]:
    """A message for each vulnerability, and for each package that was not audited."""
    found = [f"{package['name']}: {package['skip_reason']}" for package in said if "skip_reason" in package]
    for package in said:
        for advisory in package.get("vulns", []):
            mended = ", ".join(advisory["fix_versions"]) or "no version yet"
            found.append(f"{package['name']} {package['version']}: {advisory['id']} is known; mended in {mended}")
    return found


def main() -> None:
    """Audit the locks, and stop with all faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locks", type=Path, nargs="+", metavar="LOCK")
    parser.add_argument("--where-at-hand", action="store_true")
    arguments, options = parser.parse_known_args()
    found = []
    for lock in arguments.locks:
        said = audited(lock, options)
        unanswered = f"{lock}: NOT audited, no advisory service answers; expected one that pip-audit can ask"
        if said:
            found += [f"{lock}: {fault}" for fault in faults(said)]
            print(f"{lock}: {len(said)} packages audited")
        elif arguments.where_at_hand:
            print(unanswered)
        else:
            found.append(unanswered)
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
