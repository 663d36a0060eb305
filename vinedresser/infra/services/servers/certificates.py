"""Certificates by which the components of a local server know each other.

One certificate authority per server, whose key is forgotten, and one certificate for all its
components. Whoever cannot read the folder cannot connect to their ports.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import MissingDependency

__all__ = ["Certificate", "certificate_in"]

_NAMES = ("ca.pem", "certificate.pem", "key.pem")
_LIFE = dt.timedelta(days=3650)
# Clocks may be set back.
_SLACK = dt.timedelta(days=1)
# Usages of a key, all of which have to be named.
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class Certificate(NamedTuple):
    """Paths of PEM files that only this user can read.

    Attributes:
        certificate: the certificate of the server, as a server and as a client.
        key: its private key.
    """

    authority: Path
    certificate: Path
    key: Path


def certificate_in(folder: Path, address: str) -> Certificate:
    """Return the certificate in a folder; create it if missing.

    Args:
        folder: an existing folder that only this user can open.
        address: IP address at which the server listens.

    Raises:
        MissingDependency: cryptography is not installed.
    """
    paths = Certificate(*(folder / name for name in _NAMES))
    # The key is written last.
    if not paths.key.is_file():
        for path, content in zip(paths, _made(address), strict=True):
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as to:
                to.write(content)
    return paths


def _made(address: str) -> tuple[bytes, bytes, bytes]:
    """Return a new authority, a certificate by it, and the key of that, as PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise MissingDependency(
            'an S3 server needs the package cryptography: pip install "vinedresser[s3-server]"'
        ) from error
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    names = [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName("localhost")]
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name, name = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"vinedresser {word}")])
        for word in ("authority", "server")
    )
    now = dt.datetime.now(dt.UTC)

    issuer = authority_key.public_key()

    # From Python 3.13 on, clients refuse certificates without what RFC 5280 demands.
    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        authority = public == issuer
        usage = dict.fromkeys(_USAGES, False) | {
            "key_cert_sign": authority,
            "crl_sign": authority,
            "digital_signature": not authority,
        }
        return (
            x509.CertificateBuilder(
                issuer_name=authority_name,
                subject_name=subject,
                public_key=public,
                serial_number=x509.random_serial_number(),
                not_valid_before=now - _SLACK,
                not_valid_after=now + _LIFE,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False
            )
            .add_extension(x509.KeyUsage(**usage), critical=True)
        )

    authority = (
        builder(authority_name, issuer)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        builder(name, key.public_key())
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return (
        authority.public_bytes(pem),
        certificate.public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
