"""Check the pinned packages for known vulnerabilities, with pip-audit and an advisory service.

`python envs/audit.py LOCK ...` fails for a package with a known vulnerability, for one that the service does not know,
and if no service answers. With `--offline-ok` the last is reported, but is not a failure. Other options are pip-audit's
(`--ignore-vuln=ID`). pip-audit alone reports no vulnerabilities for a lock whose packages it skipped, as with a mirror
that has packages and no advisories.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def audited(lock: Path, options: list[str]) -> list[dict[str, Any]]:
    """Return pip-audit's result for each package of a lock; an empty list if no advisory service answers."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, lock.name)
        # Advisories are about versions, not about builds for CPUs.
        copy.write_text(lock.read_text(encoding="utf-8").replace("+cpu ", " "), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--format", "json", "--requirement", str(copy)]
        # The exit code is the same for an unreadable lock and an unreachable service; this call only reads the lock.
        read = subprocess.run([*command, *options, "--dry-run"], capture_output=True, text=True)
        if read.returncode:
            sys.exit(f"{lock}: pip-audit cannot read it; expected a lock that `make lock` made.\n{read.stderr}")
        done = subprocess.run([*command, *options], capture_output=True, text=True)
    results = json.loads(done.stdout)["dependencies"] if done.stdout else []
    return [] if all("skip_reason" in package for package in results) else results


def faults(results: list[dict[str, Any]]) -> list[str]:
    """Return a message for each vulnerability, and for each package that was not audited."""
    messages = [f"{package['name']}: {package['skip_reason']}" for package in results if "skip_reason" in package]
    for package in results:
        for advisory in package.get("vulns", []):
            fixed = ", ".join(advisory["fix_versions"]) or "no version yet"
            messages.append(f"{package['name']} {package['version']}: {advisory['id']} is known; fixed in {fixed}")
    return messages


def main() -> None:
    """Audit the locks; exit with all faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locks", type=Path, nargs="+", metavar="LOCK")
    parser.add_argument("--offline-ok", action="store_true")
    arguments, options = parser.parse_known_args()
    messages = []
    for lock in arguments.locks:
        results = audited(lock, options)
        unanswered = f"{lock}: NOT audited, no advisory service answers; expected one that pip-audit can ask"
        if results:
            messages += [f"{lock}: {fault}" for fault in faults(results)]
            print(f"{lock}: {len(results)} packages audited")
        elif arguments.offline_ok:
            print(unanswered)
        else:
            messages.append(unanswered)
    if messages:
        sys.exit("\n".join(messages))


if __name__ == "__main__":
    main()
