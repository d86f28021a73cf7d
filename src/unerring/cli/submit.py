"""`unerring submit APP`: what spark-submit needs for a run whose driver is in the cluster."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from unerring.cli._address import pairs


def command(
    app: Annotated[str, typer.Argument(help="module:attribute of the app.")],
    run: Annotated[list[str] | None, typer.Argument(help="Options of `unerring run`, after --.")] = None,
    master: Annotated[str, typer.Option(help="k8s://https://HOST:PORT, or yarn.")] = "",
    data: Annotated[str, typer.Option(help="The store that the run is on, such as s3://bucket/run.")] = "",
    folder: Annotated[Path, typer.Option(help="Where the files are written.")] = Path("submission"),
    image: Annotated[str, typer.Option(help="Kubernetes: the image of driver and executors.")] = "",
    namespace: Annotated[str, typer.Option(help="Kubernetes: the namespace of the pods.")] = "",
    account: Annotated[str, typer.Option(help="Kubernetes: the driver's service account, which may create pods.")] = "",
    secret: Annotated[
        str, typer.Option(help="Kubernetes: a secret with variables of all pods, such as the store's credentials.")
    ] = "",
    upload: Annotated[
        str,
        typer.Option(
            help="Kubernetes: where spark-submit uploads the files, such as s3a://bucket/folder. By default the image "
            "has them in /opt/unerring."
        ),
    ] = "",
    memory: Annotated[str, typer.Option(help="Memory of the driver.")] = "2g",
    conf: Annotated[list[str] | None, typer.Option(help="KEY=VALUE, a setting of Spark's own; once for each.")] = None,
) -> None:
    """Write the archive, the main program, pod templates and the call of spark-submit for a run, and print the call.

    Nothing is started: `sh submission/submit.sh` does that, where spark-submit is and the cluster can be reached.
    """
    from unerring.app import Submission, load, write_submission

    submission = Submission(
        app=app,
        name=load(app).name,
        master=master,
        data=data,
        folder=folder.absolute(),
        image=image,
        namespace=namespace,
        account=account,
        secret=secret,
        upload=upload,
        memory=memory,
        conf=pairs(conf),
        run=tuple(run or ()),
    )
    write_submission(submission)
    typer.echo(shlex.join(submission.command()))
