"""Makes certificates for the server's domain: leaves of a local authority, and that authority itself on first use."""

from __future__ import annotations

import datetime
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandlot.server.certificates import Certificate, given, local
from sandlot.server.hosts import hostname

AUTHORITY_LIFE = datetime.timedelta(days=3650)
LEAF_LIFE = datetime.timedelta(days=820)  # clients refuse more than 825
RENEW_BEFORE = datetime.timedelta(days=180)
BACKDATE = datetime.timedelta(days=1)  # for clocks that lag


def certificate_for(
    domain: str,
    directory: Path,
    *,
    chain: Path | None = None,
    key: Path | None = None,
    now: datetime.datetime | None = None,
) -> Certificate:
    """The user's certificate if one is given, else one of the local authority in `directory`, renewed when it is due."""
    if chain is not None or key is not None:
        return given(chain, key)
    now = now or datetime.datetime.now(datetime.UTC)
    name = hostname(domain)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = _authority(name, directory, now)
    found = local(directory)
    if not _is_good(found, authority[0], name, now):
        _make_leaf(found, authority, name, now)
    return found


Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _authority(name: str, directory: Path, now: datetime.datetime) -> Authority:
    """The local authority. It can vouch for this domain and this machine only, so that trusting it risks nothing else."""
    certificate_file, key_file = directory / "ca.crt", directory / "ca.key"
    if certificate_file.exists() and key_file.exists():
        found = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        if found.not_valid_after_utc - now > LEAF_LIFE / 2 and name in _constraints(found):
            return found, _load_key(key_file)
    key = ec.generate_private_key(ec.SECP256R1())
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Sandlot local CA for {name}"[:64])])
    constraints = x509.NameConstraints(
        permitted_subtrees=[
            x509.DNSName(name),
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_network("127.0.0.0/8")),
        ],
        excluded_subtrees=None,
    )
    certificate = (
        _builder(title, title, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(constraints, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(key_file, _pem(key), 0o600)
    _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate, key


def _make_leaf(target: Certificate, authority: Authority, name: str, now: datetime.datetime) -> None:
    issuer, issuer_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    certificate = (
        _builder(title, issuer.subject, key.public_key(), now, LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(name)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    _write(target.key, _pem(key), 0o600)
    _write(target.chain, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _names(name: str) -> list[x509.GeneralName]:
    hosts = dict.fromkeys([name, f"*.{name}", f"api.{name}", f"sandbox.{name}", "localhost"])
    return [*map(x509.DNSName, hosts), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


def _is_good(found: Certificate, issuer: x509.Certificate, name: str, now: datetime.datetime) -> bool:
    """Whether the leaf on disk is of this authority, for this name, matches its key and lasts."""
    try:
        leaf = x509.load_pem_x509_certificate(found.chain.read_bytes())
        leaf.verify_directly_issued_by(issuer)
        ours = _load_key(found.key).public_key() == leaf.public_key()
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        ours
        and f"*.{name}" in names.get_values_for_type(x509.DNSName)
        and leaf.not_valid_after_utc - now > RENEW_BEFORE
    )


def _constraints(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return []
    return [tree.value for tree in found.permitted_subtrees or () if isinstance(tree, x509.DNSName)]


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    life: datetime.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + life - BACKDATE)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path.name} holds another kind of key")
    return key


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by more people than meant, not even for a moment."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def renew_at(found: Certificate) -> datetime.datetime:
    """When the certificate, or its authority, is due."""
    assert found.authority is not None
    leaf = x509.load_pem_x509_certificate(found.chain.read_bytes())
    authority = x509.load_pem_x509_certificate(found.authority.read_bytes())
    return min(leaf.not_valid_after_utc - RENEW_BEFORE, authority.not_valid_after_utc - LEAF_LIFE / 2)


if __name__ == "__main__":
    print(renew_at(certificate_for(sys.argv[1], Path(sys.argv[2]))).isoformat())
