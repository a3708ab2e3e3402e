"""Contracts for producers and consumers in Python: confluent-kafka's own serializers, in one call.

Records have Confluent's wire format (a zero byte, the id of the schema, the payload), so whoever reads or writes the
topic, in whichever language, a pipeline among them, has the same contract.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from headrace.contracts.client import RegistryClient, RegistryLogin, registry_url, split_login
from headrace.contracts.files import read_schema_file
from headrace.contracts.schemas import Schema, SchemaType
from headrace.errors import ContractError, IncompatibleContractError, InvalidContractError, LogError

if TYPE_CHECKING:
    from confluent_kafka import Message
    from confluent_kafka.schema_registry import SchemaRegistryClient

Encode = Callable[[Any], bytes | None]
Decode = Callable[[bytes | None], Any]
SchemaLike = str | Path | Schema | type[Any]


class Naming(enum.StrEnum):
    """How a subject is called: after the topic (`clicks-value`), the record (`shop.Click`), or both."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic-record"


def serializer(
    topic: str,
    schema: SchemaLike | None = None,
    *,
    type: SchemaType | str = SchemaType.AVRO,
    naming: Naming | str = Naming.TOPIC,
    key: bool = False,
    register: bool = True,
    registry: str | None = None,
    login: RegistryLogin | None = None,
) -> Encode:
    """A function from values to bytes.

    `schema` is text, a file, or for Protobuf the class of the messages; without one it is the latest that is registered
    for the topic. A schema that is not registered yet is registered with the first value, unless `register` is off.
    """
    from confluent_kafka.serialization import MessageField, SerializationContext

    url = registry_url(registry)
    client = confluent_client(url, login)
    settings: dict[str, Any] = {"subject.name.strategy": _strategy(Naming(naming)), "auto.register.schemas": register}
    if schema is None:
        schema = RegistryClient(url, login).latest(f"{topic}-{'key' if key else 'value'}")
        settings |= {"auto.register.schemas": False, "use.latest.version": True}
    encode = _confluent_serializer(client, schema, SchemaType.named(type), settings)
    context = SerializationContext(topic, MessageField.KEY if key else MessageField.VALUE)
    return lambda value: _translated(lambda: encode(value, context), f"a value for topic `{topic}` does not fit")


def deserializer(
    topic: str,
    *,
    message: type[Any] | None = None,
    key: bool = False,
    registry: str | None = None,
    login: RegistryLogin | None = None,
) -> Decode:
    """A function from bytes to values. Which language a payload is in is told by the schema that it names.

    For Protobuf, `message` is the class to read into.
    """
    from confluent_kafka.serialization import MessageField, SerializationContext

    url = registry_url(registry)
    client = confluent_client(url, login)
    schemas = RegistryClient(url, login)
    context = SerializationContext(topic, MessageField.KEY if key else MessageField.VALUE)
    known: dict[SchemaType, Any] = {}

    def decode(data: bytes | None) -> Any:
        if data is None:
            return None
        kind = schemas.schema_by_id(schema_id(data)).type
        if kind not in known:
            known[kind] = _confluent_deserializer(client, kind, message)
        return _translated(lambda: known[kind](data, context), f"a value of topic `{topic}` can't be read")

    return decode


def schema_id(data: bytes) -> int:
    """The id of the schema that a payload was written with.

    >>> schema_id(bytes([0, 0, 0, 0, 7]) + b"payload")
    7
    """
    if len(data) < 5 or data[0] != 0:
        raise InvalidContractError(
            "the payload is not in the wire format of contracts.",
            why="It must begin with a zero byte and the four bytes of a schema's id.",
            fix="see who writes to the topic without a serializer of the registry",
        )
    return int.from_bytes(data[1:5], "big")


class ContractProducer:
    """Sends values that keep a contract.

        with contracts.producer("clicks", Path("clicks.avsc")) as clicks:
            clicks.send({"user": "ada"}, key="ada")

    Leaving the block waits until Kafka has everything, and raises if it does not.
    """

    def __init__(self, bootstrap: str, topic: str, encode: Encode, encode_key: Encode | None, **config: object) -> None:
        from confluent_kafka import Producer

        from headrace.log.producer import producer_config

        self._topic = topic
        self._encode = encode
        self._encode_key = encode_key
        self._producer = Producer(producer_config(bootstrap, **config))
        self._failures: list[str] = []

    def send(self, value: Any, key: Any = None, headers: Mapping[str, str | bytes] | None = None) -> None:
        """Encodes and sends one value; None deletes the key in a compacted topic."""
        data = None if value is None else self._encode(value)
        place = self._encode_key(key) if self._encode_key is not None and key is not None else key
        while True:
            try:
                self._producer.produce(
                    self._topic, data, place, headers=dict(headers or {}), on_delivery=self._delivered
                )
                break
            except BufferError:
                self._producer.poll(0.1)  # the queue is full: Kafka is slower than we are
        self._producer.poll(0)

    def flush(self, timeout: float = 60.0) -> None:
        """Waits until Kafka has everything."""
        left = self._producer.flush(timeout)
        if left or self._failures:
            reasons = self._failures or ["Kafka did not answer in time"]
            count = left + len(self._failures)
            self._failures = []
            raise LogError(f"{count} records for topic `{self._topic}` were not written.", why=f"{reasons[0]}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self._failures.append(error.str())


class Received(NamedTuple):
    """A record that was read and decoded."""

    value: Any
    key: Any
    message: Message


class ContractConsumer:
    """Reads values that keep a contract: iterate over it, in a `with`.

        with contracts.consumer("clicks", group="view") as clicks:
            for received in clicks:
                print(received.value["user"])

    A record that can't be decoded is raised as an error when its turn comes; the next turn goes on after it.
    """

    def __init__(
        self, bootstrap: str, topic: str, group: str, decode: Decode, decode_key: Decode | None, **config: object
    ):
        from confluent_kafka import Consumer

        from headrace.log.consumer import consumer_config

        self._topic = topic
        self._decode = decode
        self._decode_key = decode_key
        self._consumer = Consumer(consumer_config(bootstrap, group, **config))
        self._consumer.subscribe([topic])

    def poll(self, timeout: float = 1.0) -> Received | None:
        """The next record, if one comes in time."""
        message = self._consumer.poll(timeout)
        if message is None:
            return None
        problem = message.error()
        if problem is not None:
            raise LogError(f"topic `{self._topic}` can't be read.", why=f"{problem.str()}.")
        key = message.key()
        return Received(
            self._decode(message.value()), key if self._decode_key is None else self._decode_key(key), message
        )

    def commit(self) -> None:
        """Notes in Kafka how far this group has come."""
        self._consumer.commit(asynchronous=False)

    def __iter__(self) -> Iterator[Received]:
        while True:
            received = self.poll()
            if received is not None:
                yield received

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()


def producer(
    topic: str,
    schema: SchemaLike | None = None,
    *,
    key_schema: SchemaLike | None = None,
    type: SchemaType | str = SchemaType.AVRO,
    naming: Naming | str = Naming.TOPIC,
    register: bool = True,
    bootstrap: str | None = None,
    registry: str | None = None,
    login: RegistryLogin | None = None,
    **config: object,
) -> ContractProducer:
    """A producer whose values keep the contract of a topic. Keys are text or bytes unless they have a schema."""
    from headrace.log.broker import default_bootstrap

    encode = serializer(topic, schema, type=type, naming=naming, register=register, registry=registry, login=login)
    encode_key = None
    if key_schema is not None:
        encode_key = serializer(
            topic, key_schema, type=type, naming=naming, key=True, register=register, registry=registry, login=login
        )
    return ContractProducer(bootstrap or default_bootstrap(), topic, encode, encode_key, **config)


def consumer(
    topic: str,
    *,
    group: str,
    message: type[Any] | None = None,
    decode_keys: bool = False,
    bootstrap: str | None = None,
    registry: str | None = None,
    login: RegistryLogin | None = None,
    **config: object,
) -> ContractConsumer:
    """A consumer of values that keep the contract of a topic."""
    from headrace.log.broker import default_bootstrap

    decode = deserializer(topic, message=message, registry=registry, login=login)
    decode_key = deserializer(topic, key=True, registry=registry, login=login) if decode_keys else None
    return ContractConsumer(bootstrap or default_bootstrap(), topic, group, decode, decode_key, **config)


def confluent_client(url: str, login: RegistryLogin | None = None) -> SchemaRegistryClient:
    """confluent-kafka's own client, for what this module does not offer."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    shown, user, password = split_login(url, login or RegistryLogin.from_environment())
    login = login or RegistryLogin.from_environment()
    settings: dict[str, Any] = {"url": shown}
    if user is not None:
        settings["basic.auth.user.info"] = f"{user}:{password or ''}"
    files = {"ssl.ca.location": login.ca, "ssl.certificate.location": login.certificate, "ssl.key.location": login.key}
    settings |= {name: str(path) for name, path in files.items() if path is not None}
    return SchemaRegistryClient(settings)


def _confluent_serializer(
    client: SchemaRegistryClient, schema: SchemaLike, kind: SchemaType, settings: dict[str, Any]
) -> Any:
    if isinstance(schema, type):
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        return ProtobufSerializer(schema, client, {**settings, "use.deprecated.format": False})
    found = _local_schema(schema, kind)
    if found.type is SchemaType.AVRO:
        from confluent_kafka.schema_registry.avro import AvroSerializer

        return AvroSerializer(client, _confluent_schema(found), conf=settings)
    if found.type is SchemaType.JSON:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        return JSONSerializer(_confluent_schema(found), client, conf=settings)
    raise InvalidContractError(
        "a Protobuf schema as text can't encode values.",
        why="Protobuf's messages are classes that protoc makes of it.",
        fix="give the class: serializer(topic, Click)",
    )


def _confluent_deserializer(client: SchemaRegistryClient, kind: SchemaType, message: type[Any] | None) -> Any:
    if kind is SchemaType.AVRO:
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        return AvroDeserializer(client)
    if kind is SchemaType.JSON:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        return JSONDeserializer(None, schema_registry_client=client)
    if message is None:
        raise InvalidContractError(
            "the payload is Protobuf, and there is no class to read it into.", fix="name it: message=Click"
        )
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    return ProtobufDeserializer(message, {"use.deprecated.format": False}, client)


def _confluent_schema(schema: Schema) -> Any:
    from confluent_kafka.schema_registry import Schema as ConfluentSchema
    from confluent_kafka.schema_registry import SchemaReference

    references = [SchemaReference(each.name, each.subject, each.version) for each in schema.references]
    return ConfluentSchema(schema.text, schema.type.value, references)


def _local_schema(schema: str | Path | Schema, kind: SchemaType) -> Schema:
    if isinstance(schema, Path):
        return read_schema_file(schema)
    return schema if isinstance(schema, Schema) else Schema(-1, kind, schema)


def _strategy(naming: Naming) -> Any:
    from confluent_kafka import schema_registry

    return {
        Naming.TOPIC: schema_registry.topic_subject_name_strategy,
        Naming.RECORD: schema_registry.record_subject_name_strategy,
        Naming.TOPIC_RECORD: schema_registry.topic_record_subject_name_strategy,
    }[naming]


def _translated(work: Callable[[], Any], what: str) -> Any:
    """What confluent-kafka raises, as an error of ours."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from confluent_kafka.serialization import SerializationError

    try:
        return work()
    except ContractError:
        raise
    except SchemaRegistryError as error:
        if error.http_status_code == 409:
            raise IncompatibleContractError(
                f"{what}: its schema breaks the contract.",
                why=str(error)[:500],
                fix="give new fields a default, or agree on another mode: headrace contracts set-compatibility",
            ) from error
        raise InvalidContractError(f"{what}.", why=f"the registry says: {error}"[:500]) from error
    except (SerializationError, ValueError, TypeError, KeyError) as error:
        raise InvalidContractError(f"{what}.", why=f"{type(error).__name__}: {error}"[:500]) from error
