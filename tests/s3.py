"""An S3 server of the tests' own: SeaweedFS, on free ports of this machine, in a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.ports import free_port, pairs_of_ports

OWNER = ("owner", "the-owners-secret")
READER = ("reader", "the-readers-secret")
"""May read and list, and not write."""
BUCKET = "unerring"
TABLES = "tables"
"""The bucket whose Iceberg tables the server's own catalogue keeps."""
PATIENCE_S = 120
STARTS_MAX = 3
_ASK = "import httpx, sys; print(httpx.get(sys.argv[1]).status_code, end='')"

_IDENTITIES = {
    "identities": [
        {
            "name": "owner",
            "credentials": [{"accessKey": OWNER[0], "secretKey": OWNER[1]}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER[0], "secretKey": READER[1]}],
            "actions": [f"Read:{BUCKET}", f"List:{BUCKET}"],
        },
    ]
}


class PortTaken(RuntimeError):
    """Somebody took a port between the look and the bind."""


@dataclass
class S3Server:
    """A running server, and what its users set in their environment."""

    endpoint: str
    catalogue: str
    """Its REST catalogue of Iceberg tables."""
    process: subprocess.Popen[bytes]
    log: Path
    inside: Sequence[str] = ()

    @staticmethod
    def start(folder: Path, data: Path | None = None, host: str = "127.0.0.1", inside: Sequence[str] = ()) -> S3Server:
        """Start a server, and wait until it serves its bucket. `inside`: what commands are prefixed with that run where
        its address is known. Others on this machine look for ports at the same time: one that is lost is another's."""
        for _ in range(STARTS_MAX - 1):
            with suppress(PortTaken):
                return S3Server._start(folder, data, host, inside)
        return S3Server._start(folder, data, host, inside)

    @staticmethod
    def _start(folder: Path, data: Path | None, host: str, inside: Sequence[str]) -> S3Server:
        (folder / "identities.json").write_text(json.dumps(_IDENTITIES))
        held = data or folder / "data"
        held.mkdir(exist_ok=True)
        ports: dict[str, int] = {}
        for service, (port, calls) in pairs_of_ports(("master", "volume", "filer", "s3", "admin"), 10_000).items():
            ports |= {f"{service}.port": port, f"{service}.port.grpc": calls}
        catalogue = free_port()
        options = {
            "dir": held,
            "ip": host,
            "ip.bind": host,
            "bucket": BUCKET,
            "s3.config": folder / "identities.json",
            "s3.autoCreateBucket": "false",
            "s3.localSocket": folder / "s3.sock",
            "filer.localSocket": folder / "filer.sock",
            "s3.port.iceberg": catalogue,
            "tableBucket": TABLES,
            "s3.port.lance": 0,
            "webdav": "false",
            "admin.ui": "false",
            "master.telemetry": "false",
            **ports,
        }
        program = Path(sys.executable).with_name("weed")
        log = folder / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*inside, program, "mini", *(f"-{name}={value}" for name, value in options.items())],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        endpoint = f"http://{host}:{ports['s3.port']}"
        server = S3Server(endpoint, f"http://{host}:{catalogue}", process, log, inside)
        server._wait()
        return server

    def environment(self, account: tuple[str, str] = OWNER) -> dict[str, str]:
        key, secret = account
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
        }

    def end(self) -> None:
        """At once: it takes 2 s to end by itself, at times more than 30, and nobody needs what it holds."""
        self.process.kill()
        self.process.wait()

    def _wait(self) -> None:
        """Until everything runs, and strangers are refused: before that, the identities are not known."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.process.poll() is None:
            if "Press Ctrl+C" in self.log.read_text(errors="replace") and self._refuses_strangers():
                return
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        self.end()
        told = self.log.read_text(errors="replace")
        raise (PortTaken if "address already in use" in told else RuntimeError)(f"no S3 server:\n{told[-3000:]}")

    def _refuses_strangers(self) -> bool:
        if self.inside:
            asking = [*self.inside, sys.executable, "-c", _ASK, f"{self.endpoint}/{BUCKET}"]
            return subprocess.run(asking, capture_output=True, text=True, check=False).stdout == "403"
        try:
            return httpx.get(f"{self.endpoint}/{BUCKET}").status_code == 403
        except httpx.HTTPError:
            return False
