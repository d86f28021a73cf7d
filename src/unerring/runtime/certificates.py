"""Certificates with roles, and the TLS contexts made from a folder of them: both sides always show a certificate.

A folder holds `ca.pem` (whom to trust), `node.pem` and `node.key` (who we are). `ca.key` is needed only to make more of
them, and belongs on one host. New files in a folder count for the next connection, without a restart.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unerring.model import ANY_RUN, Actor, ConfigError, Who, identities

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_CERTIFICATE: Final = "ca.pem"
CA_KEY: Final = "ca.key"
NODE_CERTIFICATE: Final = "node.pem"
NODE_KEY: Final = "node.key"

ALWAYS_NAMED: Final = ("localhost", "127.0.0.1", "::1")
DAYS_MAX: Final = 3650
HOURS_MAX: Final = 24 * DAYS_MAX
_EARLY: Final = datetime.timedelta(hours=1)
"""Clocks differ: a certificate is valid a little before it was made."""
_FOLDERS_MAX: Final = 4096

_Stamps = tuple[tuple[int, int, int], ...]
_kept: dict[tuple[bool, ssl.VerifyMode, Path], tuple[_Stamps, ssl.SSLContext]] = {}
_turn = threading.Lock()


def server_context(folder: str | Path) -> ssl.SSLContext:
    """The TLS context of a listener: it refuses peers without a certificate of our CA."""
    return _context(Path(folder), server=True)


def client_context(folder: str | Path) -> ssl.SSLContext:
    """The TLS context of a dialler: the certificate must be of our CA and name the host that was dialled."""
    return _context(Path(folder), server=False)


def optional_context(folder: str | Path) -> ssl.SSLContext:
    """The TLS context of a listener that lets in peers without a certificate, too: whoever shows none is nobody."""
    return _context(Path(folder), server=True, verify=ssl.CERT_OPTIONAL)


def _context(folder: Path, server: bool, verify: ssl.VerifyMode = ssl.CERT_REQUIRED) -> ssl.SSLContext:
    """Made once, and again when the files have changed. Files that cannot be used, while they are being replaced, leave
    the former ones in force."""
    with _turn:
        kept = _kept.get((server, verify, folder))
        stamps = _stamps(folder)
        if kept is not None and kept[0] == stamps:
            return kept[1]
        try:
            context = _load(
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT), Path(folder), verify
            )
        except ConfigError:
            if kept is None:
                raise
            return kept[1]
        while len(_kept) >= _FOLDERS_MAX:
            del _kept[next(iter(_kept))]
        _kept[server, verify, folder] = stamps, context
        return context


def _stamps(folder: Path) -> _Stamps:
    found = []
    for name in (CA_CERTIFICATE, NODE_CERTIFICATE, NODE_KEY):
        try:
            status = (folder / name).stat()
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _load(context: ssl.SSLContext, folder: Path, verify: ssl.VerifyMode) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = verify
    try:
        context.load_verify_locations(folder / CA_CERTIFICATE)
        context.load_cert_chain(folder / NODE_CERTIFICATE, folder / NODE_KEY)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"tls={folder}: cannot use {CA_CERTIFICATE}, {NODE_CERTIFICATE} and {NODE_KEY} there ({error}); "
            f"make them with 'unerring certs {folder} --role ROLE --name NAME'"
        ) from None
    return context


def make_certificates(
    folder: str | Path,
    names: list[str],
    *,
    ca: str | Path | None = None,
    roles: Sequence[str] | None = None,
    run: str = ANY_RUN,
    days: int = 365,
    hours: int | None = None,
    valid_from: datetime.datetime | None = None,
) -> list[Path]:
    """Write a folder of certificates for somebody known by `names`, the first of which is its name in each of `roles`;
    with `ca`, signed by that folder's CA, otherwise by a new one. `hours`: for a short-lived certificate.

    Overwrites nothing: a key that is gone cannot be had back.
    """
    if not 1 <= days <= DAYS_MAX:
        raise ConfigError(f"certificates for {days} days: choose between 1 and {DAYS_MAX}")
    if hours is not None and not 1 <= hours <= HOURS_MAX:
        raise ConfigError(f"certificates for {hours} hours: choose between 1 and {HOURS_MAX}")
    if roles is None:
        # Whoever makes a CA could make certificates of every role with it.
        roles = () if ca is not None else tuple(Actor)
    alternatives = [_alternative(name) for name in dict.fromkeys([*names, *ALWAYS_NAMED])]
    who = [Who(run, role, names[0] if names else "localhost") for role in roles]
    folder = Path(folder)
    for name in (CA_CERTIFICATE, CA_KEY, NODE_CERTIFICATE, NODE_KEY):
        if (folder / name).exists():
            raise ConfigError(f"{folder / name} already exists and is not overwritten; choose another folder")
    start = valid_from or datetime.datetime.now(datetime.UTC) - _EARLY
    end = start + datetime.timedelta(days=days)
    written: dict[str, bytes] = {}
    if ca is None:
        ca_certificate, ca_key = _make_ca(start, end)
        written[CA_KEY] = _key_bytes(ca_key)
    else:
        ca_certificate, ca_key = _read_ca(Path(ca))
    if hours is not None:
        end = start + datetime.timedelta(hours=hours) + (_EARLY if valid_from is None else datetime.timedelta())
    certificate, key = _make_node([*alternatives, *_uris(who)], ca_certificate, ca_key, start, end)
    written[CA_CERTIFICATE] = _certificate_bytes(ca_certificate)
    written[NODE_KEY] = _key_bytes(key)
    written[NODE_CERTIFICATE] = _certificate_bytes(certificate)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return [
            _write_new(folder / name, data, 0o600 if name.endswith(".key") else 0o644) for name, data in written.items()
        ]
    except OSError as error:
        raise ConfigError(f"cannot write certificates to {folder}: {error}") from None


def identities_in(folder: str | Path) -> tuple[Who, ...]:
    """Who the certificate of a folder says that we are."""
    from cryptography import x509

    named = _alternatives(_read_own(Path(folder)))
    return identities(one.value for one in named if isinstance(one, x509.UniformResourceIdentifier))


def certificate_times(folder: str | Path) -> tuple[datetime.datetime, datetime.datetime]:
    """From when until when the certificate of a folder counts."""
    certificate = _read_own(Path(folder))
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _read_own(folder: Path) -> x509.Certificate:
    from cryptography import x509

    path = folder / NODE_CERTIFICATE
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a certificate: {error}") from None


def has_ca(folder: str | Path) -> bool:
    """Whether certificates can be made with the CA of this folder."""
    return (Path(folder) / CA_KEY).exists()


def renew(folder: str | Path, ca: str | Path, now: datetime.datetime | None = None) -> bool:
    """A new key and certificate for the same names and as long a time, once a third of the old one's time is left.
    True if that was done."""
    from cryptography import x509

    folder, now = Path(folder), now or datetime.datetime.now(datetime.UTC)
    try:
        old = x509.load_pem_x509_certificate((folder / NODE_CERTIFICATE).read_bytes())
        lifetime = old.not_valid_after_utc - old.not_valid_before_utc
        if now < old.not_valid_after_utc - lifetime / 3:
            return False
        ca_certificate, ca_key = _read_ca(Path(ca))
        start = now - _EARLY
        end = min(start + max(lifetime, 2 * _EARLY), ca_certificate.not_valid_after_utc)
        certificate, key = _make_node(_alternatives(old), ca_certificate, ca_key, start, end)
        # Between the two the files do not fit each other, and the former ones stay in force: see `_context`.
        for name, data, mode in (
            (NODE_KEY, _key_bytes(key), 0o600),
            (NODE_CERTIFICATE, _certificate_bytes(certificate), 0o644),
        ):
            (folder / f"{name}.new").unlink(missing_ok=True)
            os.replace(_write_new(folder / f"{name}.new", data, mode), folder / name)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificate in {folder} cannot be renewed: {error}") from None
    return True


def renew_all(folder: str | Path, ca: str | Path) -> list[str]:
    """Renew what is due below a folder of folders, if the CA's key is here; whose certificates were renewed."""
    if not folder or not has_ca(ca):
        return []
    due = sorted(Path(folder).glob(f"*/{NODE_CERTIFICATE}"))
    return [path.parent.name for path in due if renew(path.parent, ca)]


def _alternatives(certificate: x509.Certificate) -> list[x509.GeneralName]:
    from cryptography import x509

    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _uris(who: Sequence[Who]) -> list[x509.GeneralName]:
    from cryptography import x509

    return [x509.UniformResourceIdentifier(one.uri) for one in who]


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
    names: Sequence[x509.GeneralName],
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
        .subject_name(_name(str(names[0].value)))
        .issuer_name(ca_certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
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
