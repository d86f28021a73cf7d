"""Where credentials and options of an object store come from: the places that the cloud's own tools use.

The environment comes first, and `obstore` reads it itself, as it does the accounts of machines and containers. Added
here are the profile files of AWS, a server of one's own, and the rule that nothing goes over plain HTTP unless asked.
"""

from __future__ import annotations

import configparser
import ipaddress
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from unerring.model import CallerError, WorldError

_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_ALLOW_HTTP: Final = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_OTHER_ACCOUNTS: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_PROCESS_S: Final = 60


def options_of(scheme: str, bucket: str) -> dict[str, Any]:
    """What a client of this bucket is made with, beside what it reads from the environment itself."""
    endpoint = next((os.environ[name] for name in _ENDPOINTS[scheme] if os.environ.get(name)), None)
    options: dict[str, Any] = {}
    if scheme == "s3":
        profile = _profile()
        endpoint = endpoint or profile.get("endpoint_url")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or profile.get("region")
        known = {"endpoint": endpoint, "region": region, "credential_provider": _provider(profile)}
        options = {name: value for name, value in known.items() if value is not None}
    return {**options, "client_options": {"allow_http": _may_be_plain(scheme, bucket, endpoint)}}


def _may_be_plain(scheme: str, bucket: str, endpoint: str | None) -> bool:
    parts = urlsplit(endpoint or "")
    if parts.scheme != "http":
        return False
    if _is_loopback(parts.hostname or "") or os.environ.get(_ALLOW_HTTP[scheme], "").lower() in ("1", "true", "yes"):
        return True
    raise CallerError(
        f"the endpoint of {scheme}://{bucket} is http://{parts.hostname}: events would travel in the clear; "
        f"use https, or set {_ALLOW_HTTP[scheme]}=true"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _profile() -> dict[str, str]:
    """The settings of the profile that AWS's tools would use; none if there is none and none is asked for."""
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    files = {
        Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"): "profile ",
        Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"): "",
    }
    settings: dict[str, str] = {}
    known = False
    for file, before in files.items():
        sections = configparser.RawConfigParser(default_section="")
        try:
            sections.read(file.expanduser())
        except configparser.Error as error:
            # Its text quotes the line, which may be a secret.
            raise CallerError(f"{file} is not a profile file ({type(error).__name__}); correct it") from None
        for section in (name or "default", f"{before}{name or 'default'}"):
            if sections.has_section(section):
                known = True
                settings.update(sections[section])
    if name is not None and not known:
        raise CallerError(
            f"AWS_PROFILE is {name}, which is in none of {', '.join(str(file) for file in files)}; correct the name"
        )
    return settings


def _provider(profile: dict[str, str]) -> Callable[[], dict[str, Any]] | None:
    """What gives the profile's credentials, unless the environment has some: those come first."""
    if os.environ.get("AWS_ACCESS_KEY_ID") or any(os.environ.get(name) for name in _OTHER_ACCOUNTS):
        return None
    if "aws_access_key_id" in profile:
        return lambda: {
            "access_key_id": profile["aws_access_key_id"],
            "secret_access_key": profile.get("aws_secret_access_key", ""),
            "token": profile.get("aws_session_token"),
            "expires_at": None,
        }
    if "credential_process" in profile:
        return lambda: _ask(profile["credential_process"])
    if any(name in profile for name in ("sso_session", "sso_start_url", "role_arn", "login_session")):
        raise CallerError(
            "the profile of AWS_PROFILE signs in by SSO or a role, which needs AWS's own tool; let it give the "
            "credentials: credential_process = aws configure export-credentials --profile NAME"
        )
    return None


def _ask(command: str) -> dict[str, Any]:
    """The answer of a profile's `credential_process`."""
    try:
        done = subprocess.run(shlex.split(command), capture_output=True, timeout=_PROCESS_S, check=True)
        answer = json.loads(done.stdout)
        expiration = answer.get("Expiration")
        return {
            "access_key_id": answer["AccessKeyId"],
            "secret_access_key": answer["SecretAccessKey"],
            "token": answer.get("SessionToken"),
            "expires_at": datetime.fromisoformat(expiration.replace("Z", "+00:00")) if expiration else None,
        }
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        # Neither the command's output nor its arguments: both may be secret.
        raise WorldError(f"the profile's credential_process gives no credentials ({type(error).__name__})") from None
