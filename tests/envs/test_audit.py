"""`make audit`: pip-audit over locks, with a local advisory service."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from mill import ROOT

PYTHON = Path(sys.prefix) / "tools/bin/python"
LOCK = "".join(f"{package} \\\n    --hash=sha256:{'0' * 64}\n" for package in ("torch==2.13.0+cpu", "idna==3.20"))

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no {PYTHON}; `make {PYTHON.parents[1]}/ready` makes it")


class Advisories(BaseHTTPRequestHandler):
    """A service with OSV's protocol that knows the advisories in `known`, by package and version.

    None in `known` is a failure of the service.
    """

    known: ClassVar[dict] = {}

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = self.known.get((asked["package"]["name"], asked["version"]), [])
        body = json.dumps({"vulns": [{"id": each, "affected": []} for each in ids]} if ids else {}).encode()
        self.send_response(500 if ids is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def audit(tmp_path, monkeypatch):
    """Return `audit(known, ...)`, which audits a small lock with a service that knows `known`; None is no service."""
    lock = tmp_path / "lock.txt"
    lock.write_text(LOCK)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Advisories)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(known, *options, locks=(lock,)):
        monkeypatch.setattr(Advisories, "known", known or {})
        if known is None:
            server.shutdown()
            server.server_close()
        url = f"http://127.0.0.1:{server.server_port}/v1/query"
        command = [PYTHON, ROOT / "envs/audit.py", "--vulnerability-service=osv", f"--osv-url={url}", *options, *locks]
        return subprocess.run(command, capture_output=True, text=True)

    yield run
    server.shutdown()
    server.server_close()


def test_audit_without_known_vulnerabilities_passes(audit):
    """Without advisories the audit passes, and covers every package of the lock."""
    done = audit({})
    assert (done.returncode, "2 packages audited" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(("package", "version"), [("idna", "3.20"), ("torch", "2.13.0")])
def test_audit_with_a_known_vulnerability_fails_and_names_it(audit, package, version):
    """One advisory fails the audit, also with --offline-ok, and also for torch's CPU build."""
    done = audit({(package, version): ["PYSEC-1"]}, "--offline-ok")
    assert done.returncode == 1
    assert f"{package} {version}: PYSEC-1 is known" in done.stderr


def test_audit_with_an_accepted_vulnerability_passes(audit):
    """An ignored vulnerability does not fail the audit."""
    assert audit({("idna", "3.20"): ["PYSEC-1"]}, "--ignore-vuln=PYSEC-1").returncode == 0


def test_audit_without_a_service_fails_unless_it_is_optional(audit):
    """Without a response, the audit reports that nothing was audited."""
    strict, content = audit(None), audit(None, "--offline-ok")
    assert (strict.returncode, content.returncode) == (1, 0)
    assert "NOT audited" in strict.stderr and "NOT audited" in content.stdout


def test_failure_of_the_service_hides_no_vulnerability_of_another_lock(audit, tmp_path):
    """A vulnerability of one lock fails the audit although the service fails for the next lock."""
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text(LOCK)
    second.write_text(LOCK.replace("idna", "yte"))
    known = {("idna", "3.20"): ["PYSEC-1"], ("yte", "3.20"): None}
    done = audit(known, "--offline-ok", locks=[first, second])
    assert done.returncode == 1 and "PYSEC-1" in done.stderr and "second.txt: NOT audited" in done.stdout


def test_audit_of_an_invalid_lock_fails(audit, tmp_path):
    """A lock without hashes fails the audit, also with --offline-ok."""
    bad = tmp_path / "bad.txt"
    bad.write_text("idna==3.20\n")
    done = audit({}, "--offline-ok", locks=[bad])
    assert done.returncode == 1 and "cannot read it" in done.stderr
