"""Submissions to Kubernetes and YARN, held against Spark's own validation: what spark-submit makes of the arguments,
and the pods that Spark's own builders make of settings and templates."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from unerring.app.submission import Submission, write_submission
from unerring.model import CallerError, ConfigError
from unerring.pipeline.session import LOCAL
from unerring.pipeline.shipping import BYTES_MAX, packed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
K8S = {"master": "k8s://https://127.0.0.1:6443", "data": "s3://bucket/run", "image": "spark-with-python:1"}


def submission(folder: Path, **more: Any) -> Submission:
    return Submission(**{"app": "examples.factory.app:app", "name": "factory", "folder": folder, **K8S, **more})


class Submitted:
    """What Spark's own spark-submit makes of a call, without a cluster."""

    def __init__(self, spark: SparkSession, call: list[str], environment: dict[str, str]) -> None:
        self.context: Any = spark.sparkContext
        self.jvm = self.context._jvm
        deploy = self.jvm.org.apache.spark.deploy
        arguments = deploy.SparkSubmitArguments(self.listed(call[1:]), self.mapped(environment))
        none = self.jvm.scala.Option.apply(None)
        made = deploy.SparkSubmit().prepareSubmitEnvironment(arguments, none)
        self.arguments = self.jvm.scala.jdk.javaapi.CollectionConverters.asJava(made._1())
        self.conf = made._3()
        for name in LOCAL:  # of this JVM's own session, whose settings are in every new conf
            self.conf.remove(name)
        self.main = made._4()

    def listed(self, values: list[str]) -> Any:
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)

    def mapped(self, values: dict[str, str]) -> Any:
        return self.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(values)


def test_kubernetes_takes_the_arguments_and_the_templates(spark: SparkSession, tmp_path: Path) -> None:
    made = submission(tmp_path, namespace="events", account="driver", secret="store", run=("--once",))
    write_submission(made)
    submitted = Submitted(spark, made.command(), {})
    assert submitted.main == "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication"
    assert list(submitted.arguments)[:2] == ["--primary-py-file", "local:///opt/unerring/run.py"]
    assert "--once" in list(submitted.arguments)

    pod = driver_pod(submitted, made)
    [container] = pod.getSpec().getContainers()
    assert container.getImage() == "spark-with-python:1"
    assert container.getEnvFrom()[0].getSecretRef().getName() == "store"
    mounted = {mount.getMountPath() for mount in container.getVolumeMounts()}
    assert "/unerring" in mounted
    environment = {one.getName(): one.getValue() for one in container.getEnv()}
    assert environment["PYTHONPATH"] == "unerring-shipped"
    assert submitted.conf.get("spark.kubernetes.namespace") == "events"
    assert pod.getSpec().getServiceAccountName() == "driver"
    assert environment["TMPDIR"] == "/unerring"


def driver_pod(submitted: Submitted, made: Submission) -> Any:
    """The pod of the driver, as Spark would ask Kubernetes for it."""
    k8s = submitted.jvm.org.apache.spark.deploy.k8s
    resource = k8s.submit.PythonMainAppResource("local:///opt/unerring/run.py")
    clock = submitted.jvm.org.apache.spark.util.SystemClock()
    arguments = submitted.context._gateway.new_array(submitted.jvm.java.lang.String, 1)
    arguments[0] = made.app
    none = submitted.jvm.scala.Option.apply(None)
    conf = k8s.KubernetesDriverConf(
        submitted.conf, "spark-1", resource, "org.apache.spark.deploy.PythonRunner", arguments, none, clock
    )
    client = submitted.jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()
    try:
        spec = k8s.submit.KubernetesDriverBuilder().buildFromFeatures(conf, client)
        executor = str(made.folder / "executor.yaml")
        loaded = k8s.KubernetesUtils.loadPodFromTemplate(client, executor, none, submitted.conf)
        assert loaded.container().getVolumeMounts()[0].getMountPath() == "/unerring"
    finally:
        client.close()
    whole = submitted.jvm.io.fabric8.kubernetes.api.model.PodBuilder(spec.pod().pod())
    return whole.editSpec().addToContainers(0, spec.pod().container()).endSpec().build()


def test_yarn_takes_the_arguments(spark: SparkSession, tmp_path: Path) -> None:
    made = submission(tmp_path, master="yarn", image="", run=("--rows", "1000"))
    write_submission(made)
    submitted = Submitted(spark, made.command(), {"HADOOP_CONF_DIR": str(tmp_path)})
    assert submitted.main == "org.apache.spark.deploy.yarn.YarnClusterApplication"
    assert submitted.conf.get("spark.yarn.dist.archives").endswith("app.zip#unerring-shipped")
    assert submitted.conf.get("spark.yarn.appMasterEnv.PYTHONPATH") == "unerring-shipped"
    arguments = list(submitted.arguments)
    assert arguments[arguments.index("--primary-py-file") + 1] == f"file:{tmp_path}/run.py"
    assert arguments[-2:] == ["--arg", "1000"]


def test_the_archive_has_what_a_driver_without_the_package_needs(tmp_path: Path) -> None:
    (tmp_path / "plant").mkdir()
    (tmp_path / "plant" / "app.py").write_text(
        "from unerring import App\nfrom unerring.rules.workloads import W1\napp = App('plant', rules=[W1], buckets=2)\n"
    )
    call = ["submit", "plant.app:app", "--master", "yarn", "--data", "s3://bucket/run", "--", "--once"]
    run = [sys.executable, "-m", "unerring", *call]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("spark-submit --master yarn --deploy-mode cluster")
    unpacked = tmp_path / "elsewhere" / "unerring-shipped"
    with zipfile.ZipFile(tmp_path / "submission" / "app.zip") as archive:
        archive.extractall(unpacked)
    ask = "import unerring, plant.app; print(unerring.__file__, plant.app.app.name)"
    environment = {"PYTHONPATH": "unerring-shipped"}
    told = subprocess.run(
        [sys.executable, "-c", ask], cwd=unpacked.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert told.stdout == f"{unpacked}/unerring/__init__.py plant\n", told.stderr


def test_what_cannot_be_submitted_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes no driver; submit to k8s://"):
        submission(tmp_path, master="spark://host:7077")
    with pytest.raises(ConfigError, match="is a folder, and a driver in the cluster shares none"):
        submission(tmp_path, data="run")
    with pytest.raises(ConfigError, match="a pod needs an image"):
        submission(tmp_path, image="")
    with pytest.raises(ConfigError, match="--secret is for Kubernetes"):
        submission(tmp_path, master="yarn", image="", secret="store")


def test_an_archive_has_a_bound(tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    with pytest.raises(CallerError, match=r"more than 64 MiB at .*large.bin; move data out of the packages"):
        packed({"large.bin": large})
