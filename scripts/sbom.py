"""What a release is made of, from requirements.lock: a CycloneDX document, and the licences as a page.

    python scripts/sbom.py sbom [FILE]        write the document (build/sbom.cdx.json); a wheel has it in its dist-info
    python scripts/sbom.py licences           write docs/licences.md again, from the packages that are installed here
    python scripts/sbom.py vulnerabilities    ask OSV for known ones of every package in the lock file

Only the last one uses the network. Exit code 1: there are known vulnerabilities; 2: OSV could not be asked.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LICENCES = ROOT / "docs" / "licences.md"
OSV = "https://api.osv.dev/v1/querybatch"
TIMEOUT_S = 30
BATCH = 500
WORKING = ("dev", "site")
"""Extras for those who work on the project."""
ANSWER_BYTES_MAX = 32 << 20


class Package(NamedTuple):
    name: str
    version: str
    marker: str
    hashes: list[str]
    via: list[str]
    """Who needs it."""

    @property
    def reference(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(lock: str) -> list[Package]:
    """The packages of a lock file. Lines that are none are an error: nothing is left out silently."""
    found: list[Package] = []
    for number, line in enumerate(lock.splitlines(), 1):
        if pinned := re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)(?: ; ([^\\]+?))?(?: \\)?$", line):
            found.append(Package(pinned[1], pinned[2], pinned[3] or "", [], []))
        elif hashed := re.match(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?$", line):
            found[-1].hashes.append(hashed[1])
        elif via := re.match(r"    #   (?:via )?([A-Za-z0-9._-]+)|    # via ([A-Za-z0-9._-]+)", line):
            found[-1].via.append(via[1] or via[2])
        elif line.strip() not in ("", "# via"):
            raise SystemExit(f"requirements.lock, line {number}: {line!r} is not understood; run: make lock")
    return found


def licences(page: str) -> dict[str, str]:
    """Licences by package, from the page."""
    rows = re.findall(r"^\| `([^`]+)` \| [^|]* \| ([^|]*) \|$", page, re.MULTILINE)
    return {name: licence.strip() for name, licence in rows}


def scopes(locked: list[Package], project: dict[str, Any]) -> dict[str, str]:
    """Of each package: whether the wheel needs it, an extra does, or only working on the project."""
    extras = project.get("optional-dependencies", {})
    wanted = {
        "required": project["dependencies"],
        "optional": [one for extra, some in extras.items() if extra not in WORKING for one in some],
    }
    found: dict[str, str] = {}
    for scope, some in wanted.items():
        waiting = [re.split(r"[^A-Za-z0-9._-]", one)[0].lower() for one in some]
        while waiting:
            name = waiting.pop()
            if name not in found and name != "unerring":  # an extra that names others brings what they bring
                found[name] = scope
                waiting += [one.name for one in locked if name in one.via]
    return {one.name: found.get(one.name, "excluded") for one in locked}


def document(lock: str, licence_of: dict[str, str], project: dict[str, Any]) -> dict[str, Any]:
    """The CycloneDX document of a release. The same lock file gives the same bytes."""
    locked, version = packages(lock), project["version"]
    scope_of = scopes(locked, project)
    own = f"pkg:pypi/unerring@{version}"
    components = []
    for one in locked:
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": one.reference,
            "name": one.name,
            "version": one.version,
            "purl": one.reference,
            "scope": scope_of[one.name],
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{one.name}/{one.version}/",
                    "hashes": [{"alg": "SHA-256", "content": digest} for digest in one.hashes],
                }
            ],
        }
        if licence_of.get(one.name):
            component["licenses"] = [{"license": {"name": licence_of[one.name]}}]
        if one.marker:
            component["properties"] = [{"name": "python:marker", "value": one.marker}]
        components.append(component)
    needs: dict[str, list[str]] = {own: []}
    for one in locked:
        for name in one.via:  # several versions of it may be locked, for different platforms
            for who in [own] if name == "unerring" else [other.reference for other in locked if other.name == name]:
                needs.setdefault(who, []).append(one.reference)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + lock)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": own, "name": "unerring", "version": version, "purl": own}
        },
        "components": components,
        "dependencies": [{"ref": who, "dependsOn": sorted(what)} for who, what in sorted(needs.items())],
    }


def write_sbom(target: Path) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    target.parent.mkdir(parents=True, exist_ok=True)
    made = document(lock, licences(LICENCES.read_text()), project)
    target.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


def licence_here(name: str) -> str:
    """What an installed package says of its licence; empty if it is not installed here."""
    try:
        said = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    if said.get("License-Expression"):
        return str(said["License-Expression"])
    classes = [value.rpartition(" :: ")[2] for value in said.get_all("Classifier") or () if "License ::" in value]
    text = (said.get("License") or "").strip().splitlines()
    return ", ".join(classes) or (text[0][:60] if text else "not stated")


def write_licences() -> None:
    known = licences(LICENCES.read_text()) if LICENCES.exists() else {}
    lines = [
        "# Licences",
        "",
        "All packages in `requirements.lock`, with the licences that they state. `make lock` writes this page again.",
        "",
        "| package | version | licence |",
        "|---|---|---|",
    ]
    for one in packages((ROOT / "requirements.lock").read_text()):
        licence = licence_here(one.name) or known.get(one.name) or f"not installed here ({one.marker})"
        lines.append(f"| `{one.name}` | {one.version} | {licence.replace('|', '/')} |")
    LICENCES.write_text("\n".join(lines) + "\n")


def vulnerabilities(url: str) -> int:
    """Print the known vulnerabilities of what is locked."""
    locked = packages((ROOT / "requirements.lock").read_text())
    found = 0
    for first in range(0, len(locked), BATCH):
        some = locked[first : first + BATCH]
        asked = [{"package": {"name": one.name, "ecosystem": "PyPI"}, "version": one.version} for one in some]
        request = urllib.request.Request(
            url, json.dumps({"queries": asked}).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                results = json.loads(answer.read(ANSWER_BYTES_MAX))["results"]
        except (OSError, ValueError, KeyError) as error:
            say(f"OSV could not be asked ({error}): nothing is known; try again online", sys.stderr)
            return 2
        if len(results) != len(some):
            say(f"OSV answered {len(results)} of {len(some)} questions; nothing is known", sys.stderr)
            return 2
        for one, result in zip(some, results, strict=True):
            for known in result.get("vulns", ()):
                found += 1
                say(f"{one.name} {one.version}: https://osv.dev/vulnerability/{known['id']}")
    say(f"{len(locked)} packages, {found} known vulnerabilities")
    return 1 if found else 0


def say(text: str, file: Any = None) -> None:
    (file or sys.stdout).write(text + "\n")


def main(arguments: list[str]) -> int:
    match arguments:
        case ["sbom", *target] if len(target) <= 1:
            write_sbom(Path(target[0]) if target else ROOT / "build" / "sbom.cdx.json")
        case ["licences"]:
            write_licences()
        case ["vulnerabilities", *url] if len(url) <= 1:
            return vulnerabilities(url[0] if url else OSV)
        case _:
            say(str(__doc__), sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
