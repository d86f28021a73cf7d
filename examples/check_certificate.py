"""A second checker of verdicts: it has nothing of Unerring, only hashes, Ed25519 and JSON.

    python examples/check_certificate.py verdict.json [--key HEX] [--run FOLDER]

It checks what docs/certificate.md describes: the signature, the chain of roots, that every stream is under the root
that was judged, and that the counts add up. With --run it reads the segments of the run's streams, too: each one's
bytes, and that each names the one before it, up to the one that the root names.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def sha256(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def signed(key: str, signature: str, statement: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def statement(root: dict[str, Any]) -> bytes:
    return f"unerring-root 1\n{root['number']}\n{root['at_us']}\n{root['before']}\n{root['merkle']}\n".encode()


def climbed(leaf: bytes, path: list[list[str]]) -> str:
    node = sha256(b"\0", leaf)
    for side, beside in path:
        if not re.fullmatch("[0-9a-f]{64}", beside):
            return "no path"
        left, right = (beside, node) if side == "left" else (node, beside)
        node = sha256(b"\1", bytes.fromhex(left), bytes.fromhex(right))
    return node


def faults_of(verdict: dict[str, Any], key: str = "") -> list[str]:
    """What is wrong with a certificate by itself."""
    faults = []
    unsigned = {name: value for name, value in verdict.items() if name != "signature"}
    canonical = json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if verdict["format"] not in (1, 2) or not signed(
        verdict["key"], verdict["signature"], b"unerring-verdict 1\n" + canonical
    ):
        faults.append("the signature is not by its key over this document")
    if key and verdict["key"] != key:
        faults.append("it is signed by another key")
    for root in verdict["roots"]:
        if sha256(statement(root)) != root["hash"]:
            faults.append(f"root {root['number']} has another hash")
        if root["key"] and not signed(root["key"], root["signature"], statement(root)):
            faults.append(f"root {root['number']} is not signed by its key")
    for before, after in pairwise(verdict["roots"]):
        if after["before"] != before["hash"]:
            faults.append(f"root {after['number']} does not follow the one before it")
    for stream in verdict["streams"]:
        leaf = "\0".join(["stream", *map(str, stream["head"])]).encode()
        if climbed(leaf, stream["path"]) != verdict["roots"][-1]["merkle"]:
            faults.append(f"stream {stream['head'][0]} is not under the root")
    counts = [rule["counts"] for rule in verdict["rules"]] + [(verdict.get("processes") or {}).get("counts", {})]
    if verdict["wrong"] != sum(sum(one.values()) for one in counts) + len(verdict["violations"]):
        faults.append("the violations do not add up")
    return faults


def footer_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """What a segment says of itself, and the file's end, which says it."""
    tail = data[-int.from_bytes(data[-8:-4], "little") - 8 :]
    at = tail.index(b'{"stream":')
    return json.JSONDecoder().raw_decode(tail[at:].decode("utf-8", "surrogateescape"))[0], tail


def faults_in(folder: Path, head: list[Any]) -> list[str]:
    """What is wrong with the segments of a stream, up to the one that the root names."""
    stream, _, through_us, digest, *_ = head
    if list(folder.glob("index/*.json")):
        return [f"{stream}: its past is compacted, which this checker does not follow"]
    before = last = ""
    for path in sorted(folder.glob("segments/*.parquet")):
        data = path.read_bytes()
        said, tail = footer_of(data)
        own = re.sub(rb'("digest":")[0-9a-f]{64}"', rb"\g<1>" + b"0" * 64 + b'"', tail)
        if sha256(data[4 : -len(tail)]) != said["content"] or sha256(data[:4], own) != said["digest"]:
            return [f"{path} is not what it was sealed as"]
        if said["before"] != before:
            return [f"{path} does not follow the segment before it"]
        before = said["digest"]
        last = before if said["through_us"] <= through_us else last
    return [] if last == digest else [f"{stream}: the newest segment is not the one that the root names"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verdict", type=Path)
    parser.add_argument("--key", default="", help="the public key that must have signed it")
    parser.add_argument("--run", type=Path, help="the run's folder")
    asked = parser.parse_args()
    verdict = json.loads(asked.verdict.read_bytes())
    faults = faults_of(verdict, asked.key)
    for stream in verdict["streams"] if asked.run else ():
        faults += faults_in(asked.run / "log" / stream["head"][0], stream["head"])
    for fault in faults:
        print(f"does not hold: {fault}")
    print("the certificate does not hold" if faults else f"the certificate holds; violations: {verdict['wrong']}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
