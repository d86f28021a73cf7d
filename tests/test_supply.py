"""Where packages come from: hashes in the lock file, the list in the wheel, licences, known vulnerabilities."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"] | {"version": "1.2.3"}


def _scripts() -> Any:
    spec = spec_from_file_location("sbom", ROOT / "scripts" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sbom = _scripts()


def test_every_package_is_locked_with_hashes_and_has_a_licence() -> None:
    locked = sbom.packages(LOCK)
    assert len(locked) > 100
    assert not [one.name for one in locked if not one.hashes]
    page = (ROOT / "docs" / "licences.md").read_text()
    assert {name for name, licence in sbom.licences(page).items() if licence} == {one.name for one in locked}
    assert all(f"| `{one.name}` | {one.version} |" in page for one in locked), "run: make lock"


def test_a_line_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(SystemExit, match="line 1"):
        sbom.packages("https://example.org/package.whl\n")


def test_the_list_names_everything_and_who_needs_it() -> None:
    made = sbom.document(LOCK, {"msgspec": "BSD-3-Clause"}, PROJECT)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    components = {one["name"]: one for one in made["components"]}
    assert len(made["components"]) == len(sbom.packages(LOCK))
    scopes = {name: components[name]["scope"] for name in ("numpy", "llvmlite", "deltalake", "pytest")}
    assert scopes == {"numpy": "required", "llvmlite": "required", "deltalake": "optional", "pytest": "excluded"}
    assert components["msgspec"]["licenses"] == [{"license": {"name": "BSD-3-Clause"}}]
    needs = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    assert components["msgspec"]["purl"] in needs["pkg:pypi/unerring@1.2.3"]
    known = {*(one["bom-ref"] for one in made["components"]), "pkg:pypi/unerring@1.2.3"}
    assert {one for some in needs.values() for one in some} | set(needs) <= known
    assert made == sbom.document(LOCK, {"msgspec": "BSD-3-Clause"}, PROJECT), "the same lock, the same list"


def test_a_wheel_has_the_list(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", str(tmp_path), str(ROOT)], check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/sboms/sbom.cdx.json")]
        assert len(json.loads(archive.read(name))["components"]) == len(sbom.packages(LOCK))


def test_pip_refuses_a_file_that_was_exchanged(tmp_path: Path) -> None:
    """As `make install` calls it."""
    wheel = tmp_path / "harmless-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("harmless.py", "")
        archive.writestr("harmless-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: harmless\nVersion: 1.0\n")
        archive.writestr(
            "harmless-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("harmless-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = tmp_path / "lock"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-qq",
        "--no-deps",
        "--require-hashes",
        "--no-index",
        "--dry-run",
    ]
    command += ["--find-links", str(tmp_path), "-r", str(lock)]
    assert "--no-deps --require-hashes" in (ROOT / "scripts" / "install").read_text()
    lock.write_text(f"harmless==1.0 --hash=sha256:{digest}\n")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr


class _Osv(BaseHTTPRequestHandler):
    """Knows one vulnerability of msgspec."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        known = [{"vulns": [{"id": "PYSEC-1"}]} if one["package"]["name"] == "msgspec" else {} for one in asked]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"results": known}).encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_known_vulnerabilities_are_reported_and_ignorance_too(capsys: pytest.CaptureFixture[str]) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Osv)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert sbom.main(["vulnerabilities", f"http://127.0.0.1:{server.server_port}"]) == 1
    finally:
        server.shutdown()
        server.server_close()
    assert "https://osv.dev/vulnerability/PYSEC-1" in capsys.readouterr().out
    assert sbom.main(["vulnerabilities", f"http://127.0.0.1:{server.server_port}"]) == 2
    assert "nothing is known; try again online" in capsys.readouterr().err
