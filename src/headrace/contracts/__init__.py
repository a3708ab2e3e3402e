"""Contracts: the schemas that producers and consumers of a topic agree on, kept in a schema registry.

>>> from headrace import contracts
>>> contracts.Reference("money.avsc", "money", 2).to_json()
{'name': 'money.avsc', 'subject': 'money', 'version': 2}
"""

from headrace.contracts.client import RegistryClient, RegistryLogin, registry_url
from headrace.contracts.schemas import Reference, RegisteredSchema, Schema, SchemaType, resolve_references
from headrace.contracts.serializers import Naming, consumer, deserializer, producer, serializer

__all__ = [
    "Naming",
    "Reference",
    "RegisteredSchema",
    "RegistryClient",
    "RegistryLogin",
    "Schema",
    "SchemaType",
    "consumer",
    "deserializer",
    "producer",
    "registry_url",
    "resolve_references",
    "serializer",
]
