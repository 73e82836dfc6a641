"""The instance's own certificate authority for connections that are opened: made once, its key for root alone."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a host without header rules does without it
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_VALID = timedelta(days=3650)
_LEAF_VALID = timedelta(days=7)


class EgressAuthority:
    """Two files in a directory; made when first needed. The certificate goes into sandboxes, the key nowhere."""

    def __init__(self, directory: Path, instance: str) -> None:
        self._directory, self._instance = directory, instance

    @property
    def certificate(self) -> str:
        return self._files[0]

    def certify(self, name: str) -> str:
        """A key and a certificate for a name (PEM)."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from cryptography.x509.oid import ExtendedKeyUsageOID

        own_key = load_pem_private_key(self._files[1].encode(), None)
        assert isinstance(own_key, ec.EllipticCurvePrivateKey)
        issuer = x509.load_pem_x509_certificate(self._files[0].encode()).subject
        key = ec.generate_private_key(ec.SECP256R1())
        built = (
            _builder(name if len(name) <= 64 else "a long name", issuer, key, _LEAF_VALID)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own_key.public_key()), critical=False)
        )
        return "".join(_pem(built, key, own_key))

    @cached_property
    def _files(self) -> tuple[str, str]:
        certificate, key = self._directory / "ca.crt", self._directory / "ca.key"
        if not (certificate.exists() and key.exists()):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = _make(self._instance)
            for path, content in ((key, made[0]), (certificate, made[1])):
                draft = path.with_suffix(".new")
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                    file.write(content)
                draft.rename(path)
        return certificate.read_text(), key.read_text()


def _make(instance: str) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    used = ("key_cert_sign", "crl_sign")
    unused = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = {**dict.fromkeys((*unused, "encipher_only", "decipher_only"), False), **dict.fromkeys(used, True)}
    built = (
        _builder(f"Sandlot egress {instance}", None, key, _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pem(built, key, key)


def _builder(
    name: str, issuer: x509.Name | None, key: EllipticCurvePrivateKey, valid: timedelta
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    own, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(issuer or own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + valid)
    )


def _pem(
    built: x509.CertificateBuilder, key: EllipticCurvePrivateKey, signer: EllipticCurvePrivateKey
) -> tuple[str, str]:
    from cryptography.hazmat.primitives import hashes, serialization

    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret.decode(), built.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
