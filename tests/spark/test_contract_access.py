"""How the JVM reaches a registry: over TLS with certificates of its own, with a login, and with nothing of it shown."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyspark.sql import functions as F

from headrace.contracts import RegistryClient, RegistryLogin
from headrace.kernel import doorway
from tests.spark.contract_rows import avro, framed
from tests.spark.registry_stub import StubRegistry, stub_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "long"}]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One certificate for everybody, signed by itself: the registry's, the client's, and the one to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry of a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return files


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[StubRegistry]:
    """It answers only over TLS, and only to those who show the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    with stub_registry(context) as running:
        running.add(1, json.dumps(SCHEMA))
        yield running


def decoded(spark: SparkSession, client: RegistryClient, patience_ms: int = 10_000) -> tuple[list[object], str]:
    """The decoded column, and the plan that decodes it."""
    access = {**client.access(), "patienceMs": patience_ms}
    rows = spark.createDataFrame([(framed(1, b"\x0e"),)], "value BINARY")
    column = doorway.from_contract(spark, F.col("value"), avro(SCHEMA).spec(), "`n` bigint", "reason", access)
    result = rows.select(column.alias("p")).select("p.n", "p.reason")
    plan: str = result._jdf.queryExecution().toString()
    return [tuple(row) for row in result.collect()], plan


def test_tls_and_login(spark: SparkSession, secure: StubRegistry, certificate: tuple[Path, Path]) -> None:
    login = RegistryLogin("ada", "s3cret", ca=certificate[0], certificate=certificate[0], key=certificate[1])
    rows, plan = decoded(spark, RegistryClient(secure.url, login))
    assert rows == [(7, None)]
    assert secure.authorizations == {"Basic YWRhOnMzY3JldA=="}
    for secret in ("s3cret", "YWRhOnMzY3JldA==", str(certificate[1])):
        assert secret not in plan
    assert secure.url in plan, "what it asks may be seen"


def test_a_certificate_that_nobody_trusts_stops_the_query(
    spark: SparkSession, secure: StubRegistry, certificate: tuple[Path, Path]
) -> None:
    client = RegistryClient(secure.url, RegistryLogin(certificate=certificate[0], key=certificate[1]))
    with pytest.raises(Exception, match="could not be asked"):
        decoded(spark, client, patience_ms=100)
    assert secure.asked == []
