"""A run whose driver is in the cluster too: what `spark-submit` needs for it on Kubernetes or YARN, as some files.

Driver and executors get the package and the app by one archive, as executors do in a run whose driver is here. All that
they share is the run's store.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from unerring.log import LocalStore
from unerring.model import ConfigError
from unerring.pipeline import REMOTE, SUBMITTED, UNPACKED, archive

ARCHIVE: Final = "app.zip"
MAIN: Final = "run.py"
COMMAND: Final = "submit.sh"
IN_IMAGE: Final = "/opt/unerring"
"""Where the image of a pod has archive and main program, if nothing is uploaded."""
VOLUME: Final = "/unerring"
"""Where a pod has room for what need not survive it."""
_MAIN_TEXT: Final = '''"""The driver of a run, as spark-submit starts it: its arguments are those of `unerring run`."""

import sys

from unerring.cli import main

sys.argv[1:1] = ["run"]
main()
'''


@dataclass(frozen=True)
class Submission:
    """A run, and the cluster that is to run it."""

    app: str
    """module:attribute."""
    name: str
    """The app's own."""
    master: str
    data: str
    folder: Path
    """Where its files are."""
    image: str = ""
    namespace: str = ""
    account: str = ""
    """Kubernetes: the service account of the driver, which must be allowed to create pods."""
    secret: str = ""
    """Kubernetes: a secret whose entries are variables of driver and executors, such as those of the store."""
    upload: str = ""
    """Kubernetes: an address that Spark's own file systems can write; without it the files are in the image."""
    memory: str = "2g"
    conf: dict[str, str] = field(default_factory=dict)
    run: tuple[str, ...] = ()
    """Further options of `unerring run`."""

    def __post_init__(self) -> None:
        if not (self.on_kubernetes or self.master == "yarn"):
            raise ConfigError(
                f"master {self.master!r} takes no driver; submit to k8s://https://HOST:PORT or yarn, else use "
                f"`unerring run {self.app} --master {self.master}` on a host that the workers reach"
            )
        if "://" not in self.data or self.data.startswith("file:"):
            raise ConfigError(
                f"--data {self.data} is a folder, and a driver in the cluster shares none with its executors; give a "
                "store such as s3://bucket/run"
            )
        if self.on_kubernetes and not self.image:
            raise ConfigError(
                "a pod needs an image: give --image with Spark, Python and the packages of docs/dependencies.md"
            )
        misplaced = [
            f"--{name}"
            for name in ("image", "namespace", "account", "secret", "upload")
            if getattr(self, name) and not self.on_kubernetes
        ]
        if misplaced:
            raise ConfigError(f"{misplaced[0]} is for Kubernetes; on YARN use Spark's settings (--conf)")

    @property
    def on_kubernetes(self) -> bool:
        return self.master.startswith("k8s://")

    def files(self) -> dict[str, str]:
        """All files but the archive, by their names."""
        made = {MAIN: _MAIN_TEXT, COMMAND: f"#!/bin/sh\nexec {shlex.join(self.command())}\n"}
        if self.on_kubernetes:
            made |= {"driver.yaml": self._pod(), "executor.yaml": self._pod()}
        return made

    def command(self) -> list[str]:
        """The call of spark-submit."""
        settings = {**REMOTE, **self._places(), **self.conf}
        command = ["spark-submit", "--master", self.master, "--deploy-mode", "cluster"]
        command += ["--name", f"unerring {self.name}", "--driver-memory", self.memory]
        command += ["--archives", f"{self._where(ARCHIVE)}#{UNPACKED}"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        scratch = f"{VOLUME}/scratch" if self.on_kubernetes else "scratch"
        given = ["--data", self.data, "--scratch", scratch, "--master", SUBMITTED]
        return [*command, self._where(MAIN), self.app, *given, *self.run]

    def _places(self) -> dict[str, str]:
        """Where driver and executors find the modules, and pods everything else."""
        importable = {"spark.executorEnv.PYTHONPATH": UNPACKED}
        if not self.on_kubernetes:
            return {**importable, "spark.yarn.appMasterEnv.PYTHONPATH": UNPACKED}
        chosen = {
            "spark.kubernetes.namespace": self.namespace,
            "spark.kubernetes.authenticate.driver.serviceAccountName": self.account,
            "spark.kubernetes.file.upload.path": self.upload,
        }
        return {
            **importable,
            "spark.kubernetes.driverEnv.PYTHONPATH": UNPACKED,
            "spark.kubernetes.container.image": self.image,
            "spark.kubernetes.driver.podTemplateFile": str(self.folder / "driver.yaml"),
            "spark.kubernetes.executor.podTemplateFile": str(self.folder / "executor.yaml"),
            **{name: value for name, value in chosen.items() if value},
        }

    def _where(self, name: str) -> str:
        """A file as spark-submit is to take it: from here, or from the image."""
        if self.on_kubernetes and not self.upload:
            return f"local://{IN_IMAGE}/{name}"
        return str(self.folder / name)

    def _pod(self) -> str:
        """A pod with room of its own, and with the store's credentials."""
        secret = f"      envFrom:\n        - secretRef: {{name: {self.secret}}}\n" if self.secret else ""
        return (
            "apiVersion: v1\n"
            "kind: Pod\n"
            "spec:\n"
            "  securityContext: {fsGroup: 185}\n"
            "  containers:\n"
            "    - name: unerring\n"
            "      env:\n"
            f"        - {{name: TMPDIR, value: {VOLUME}}}\n"
            f"        - {{name: XDG_CACHE_HOME, value: {VOLUME}/cache}}\n"
            f"{secret}"
            "      volumeMounts:\n"
            f"        - {{name: own, mountPath: {VOLUME}}}\n"
            "  volumes:\n"
            "    - {name: own, emptyDir: {}}\n"
        )


def write_submission(submission: Submission) -> None:
    """Write its folder. The archive has what this process has loaded: this package, the app and its modules."""
    store = LocalStore(submission.folder)
    for name, text in submission.files().items():
        store.replace(name, text.encode())
    archive(submission.folder / ARCHIVE)
