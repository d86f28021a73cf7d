"""Development certificates, and the TLS contexts made from a folder of them: both sides always show a certificate.

A folder holds `ca.pem` (whom to trust), `node.pem` and `node.key` (who we are). `ca.key` is needed only to make more of
them and may be kept elsewhere.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unerring.model import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_CERTIFICATE: Final = "ca.pem"
CA_KEY: Final = "ca.key"
NODE_CERTIFICATE: Final = "node.pem"
NODE_KEY: Final = "node.key"

ALWAYS_NAMED: Final = ("localhost", "127.0.0.1", "::1")
DAYS_MAX: Final = 3650


def server_context(folder: str | Path) -> ssl.SSLContext:
    """The TLS context of a listener: it refuses peers without a certificate of our CA."""
    return _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Path(folder))


def client_context(folder: str | Path) -> ssl.SSLContext:
    """The TLS context of a dialler: the certificate must be of our CA and name the host that was dialled."""
    return _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), Path(folder))


def _load(context: ssl.SSLContext, folder: Path) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(folder / CA_CERTIFICATE)
        context.load_cert_chain(folder / NODE_CERTIFICATE, folder / NODE_KEY)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"tls={folder}: cannot use {CA_CERTIFICATE}, {NODE_CERTIFICATE} and {NODE_KEY} there ({error}); "
            f"make them with 'unerring certs {folder} --name HOST'"
        ) from None
    return context


def make_certificates(
    folder: str | Path,
    names: list[str],
    *,
    ca: str | Path | None = None,
    days: int = 365,
    valid_from: datetime.datetime | None = None,
) -> list[Path]:
    """Write a folder of certificates for a node known by `names`; with `ca`, signed by that folder's CA.

    Overwrites nothing: a key that is gone cannot be had back.
    """
    if not 1 <= days <= DAYS_MAX:
        raise ConfigError(f"certificates for {days} days: choose between 1 and {DAYS_MAX}")
    folder = Path(folder)
    for name in (CA_CERTIFICATE, CA_KEY, NODE_CERTIFICATE, NODE_KEY):
        if (folder / name).exists():
            raise ConfigError(f"{folder / name} already exists and is not overwritten; choose another folder")
    start = valid_from or datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    end = start + datetime.timedelta(days=days)
    written: dict[str, bytes] = {}
    if ca is None:
        ca_certificate, ca_key = _make_ca(start, end)
        written[CA_KEY] = _key_bytes(ca_key)
    else:
        ca_certificate, ca_key = _read_ca(Path(ca))
    certificate, key = _make_node([*dict.fromkeys([*names, *ALWAYS_NAMED])], ca_certificate, ca_key, start, end)
    written[CA_CERTIFICATE] = _certificate_bytes(ca_certificate)
    written[NODE_KEY] = _key_bytes(key)
    written[NODE_CERTIFICATE] = _certificate_bytes(certificate)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _write_new(folder / name, data, 0o600 if name.endswith(".key") else 0o644) for name, data in written.items()
        ]
    except OSError as error:
        raise ConfigError(f"cannot write certificates to {folder}: {error}") from None


def _write_new(path: Path, data: bytes, mode: int) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
    return path


def _make_ca(start: datetime.datetime, end: datetime.datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Unerring development CA")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _make_node(
    names: list[str],
    ca_certificate: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    start: datetime.datetime,
    end: datetime.datetime,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(names[0]))
        .issuer_name(ca_certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    return certificate, key


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        raise ConfigError(
            f"{name!r} is not a host name or an address; write it in ASCII (xn--... for others)"
        ) from None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate_bytes(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_ca(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        certificate = x509.load_pem_x509_certificate((folder / CA_CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read a CA from {CA_CERTIFICATE} and {CA_KEY} in {folder}: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / CA_KEY} is not an elliptic-curve key; use a CA made by 'unerring certs'")
    return certificate, key
