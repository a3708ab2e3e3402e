"""One hierarchy of errors. Each says what is wrong, where, why, and how to fix it.

HeadraceError
├── PipelineError                 a declaration is wrong; found before any JVM starts
│   ├── InvalidPipelineError      all problems of one pipeline, raised at once
│   ├── MissingEventTimeError     a step that needs event time has none
│   ├── MissingKeyError           a keyed step without key_by
│   ├── UnknownColumnError        a column that the stream does not have
│   ├── InvalidExpressionError    a condition or value that Spark does not take
│   ├── DuplicateStepError        two steps with one name: they would share one state
│   ├── UnboundedStateError       a step that would keep state for ever
│   ├── InvalidDurationError      "30 parsecs"
│   ├── InvalidAlarmError         "lag is too big"
│   ├── InvalidSchemaError        a DDL string or dataclass that is not a schema
│   ├── BrokenContractError       a contract that the registry lacks, or that the pipeline would break
│   └── UnsupportedStepError      a combination this version does not lower
├── EnvironmentProblem            the machine, not the pipeline
│   ├── JavaNotFoundError
│   ├── JavaTooOldError
│   ├── JarsNotFoundError         jars can't be resolved (no network and no cache)
│   ├── KernelBuildError          the Scala kernel does not compile
│   └── PortTakenError
├── LogError                      Kafka
│   ├── BrokerUnavailableError
│   ├── BrokerStartError
│   ├── TopicNotFoundError
│   └── TopicExistsError
├── ContractError                 schemas and their registry
│   ├── RegistryUnavailableError  no registry answers at the address
│   ├── RegistryLoginError        the registry wants to know who asks, or does not like the answer
│   ├── RegistryLogError          the registry's own log, in Kafka, does not answer in time
│   ├── RegistryRefusedError      the registry refused for a reason of its own
│   ├── ContractNotFoundError     a subject, version or id that the registry does not have
│   ├── InvalidContractError      a schema that can't be read
│   └── IncompatibleContractError a change that would break readers or writers
├── RunError                      a pipeline that runs
│   ├── CheckpointMismatchError   the checkpoint belongs to another pipeline or another shape of this one
│   ├── AlreadyRunningError       another process runs this pipeline on the same checkpoint
│   ├── UnsupportedModeError      the mode can't give what the pipeline or the run asks for
│   └── QueryFailedError          Spark stopped the query
├── SinkError                     a store that a pipeline writes to
│   ├── SinkUnavailableError      it does not answer
│   └── MissingExtraError         its client library is not installed
├── DashboardError                the dashboard's own settings: its address, its token, its alarm file
└── PipelineNotFoundError         `headrace run MODULE:NAME` finds no such thing
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """Where the user wrote it.

    >>> str(Location("jobs/fraud.py", 8))
    'jobs/fraud.py:8'
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class HeadraceError(Exception):
    """The base of all errors that Headrace raises on purpose.

    >>> print(TopicNotFoundError("topic `clicks` does not exist.", fix="headrace topics create clicks"))
    topic `clicks` does not exist.
      Fix: headrace topics create clicks
    """

    def __init__(
        self,
        what: str,
        *,
        why: str | None = None,
        fix: str | None = None,
        location: Location | None = None,
        pipeline: str | None = None,
    ) -> None:
        self.what = what
        self.why = why
        self.fix = fix
        self.location = location
        self.pipeline = pipeline
        super().__init__(self.render())

    def render(self) -> str:
        """The message as a user reads it, without the class name."""
        lines = [self.what]
        where = []
        if self.location is not None:
            where.append(f"at {self.location}")
        if self.pipeline is not None:
            where.append(f"pipeline `{self.pipeline}`")
        if where:
            lines.append("  " + ", ".join(where))
        if self.why:
            lines.extend(f"  {line}" for line in self.why.splitlines())
        if self.fix:
            first, *rest = self.fix.splitlines()
            lines.append(f"  Fix: {first}")
            lines.extend(f"       {line}" for line in rest)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """The same for machines (`--output json`)."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            "where": None if self.location is None else str(self.location),
            "pipeline": self.pipeline,
            "why": self.why,
            "fix": self.fix,
        }

    def in_pipeline(self, name: str) -> HeadraceError:
        """The same error, told of a pipeline; one that names its pipeline already stays as it is.

        >>> print(UnknownColumnError("there is no `amuont`.").in_pipeline("card-fraud"))
        there is no `amuont`.
          pipeline `card-fraud`
        """
        if self.pipeline is not None:
            return self
        return _rebuild(type(self), self.what, self.why, self.fix, self.location, name)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.why, self.fix, self.location, self.pipeline))


def _rebuild(
    kind: type[HeadraceError],
    what: str,
    why: str | None,
    fix: str | None,
    location: Location | None,
    pipeline: str | None,
) -> HeadraceError:
    return kind(what, why=why, fix=fix, location=location, pipeline=pipeline)


class PipelineError(HeadraceError):
    """A declaration is wrong."""


class InvalidPipelineError(PipelineError):
    """All problems of one pipeline at once; `.problems` holds them."""

    def __init__(self, pipeline: str, problems: Sequence[PipelineError]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        super().__init__(f"pipeline `{pipeline}` has {count} problem{'s' if count != 1 else ''}.", pipeline=pipeline)

    def render(self) -> str:
        """Every problem in full, in the order in which the user wrote the steps."""
        parts = [self.what]
        parts.extend(f"{type(p).__name__}: {p.render()}" for p in self.problems)
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, object]:
        """The problems as a list under `problems`."""
        return {**super().to_dict(), "problems": [p.to_dict() for p in self.problems]}

    def __reduce__(self) -> tuple[object, ...]:
        return (InvalidPipelineError, (self.pipeline, self.problems))


class MissingEventTimeError(PipelineError):
    """A step that orders events by time has no event time."""


class MissingKeyError(PipelineError):
    """A keyed step on a stream without a key."""


class UnknownColumnError(PipelineError):
    """A column that the stream does not have."""


class InvalidExpressionError(PipelineError):
    """A condition or value that Spark does not take: it can't be parsed, or its types do not fit."""


class DuplicateStepError(PipelineError):
    """Two steps with the same name."""


class UnboundedStateError(PipelineError):
    """A step that would keep state for ever."""


class InvalidDurationError(PipelineError):
    """A duration that can't be read."""


class InvalidAlarmError(PipelineError):
    """An alarm that can't be read."""


class InvalidSchemaError(PipelineError):
    """A schema that can't be read."""


class BrokenContractError(PipelineError):
    """A contract that the registry does not have, or that the pipeline does not fit."""


class UnsupportedStepError(PipelineError):
    """A combination of steps that this version can't run."""


class EnvironmentProblem(HeadraceError):
    """Something about the machine."""


class JavaNotFoundError(EnvironmentProblem):
    """No Java at all."""


class JavaTooOldError(EnvironmentProblem):
    """A Java older than 17."""


class JarsNotFoundError(EnvironmentProblem):
    """Jars that could not be resolved."""


class KernelBuildError(EnvironmentProblem):
    """The Scala kernel does not compile."""


class PortTakenError(EnvironmentProblem):
    """Another process listens on that port."""


class LogError(HeadraceError):
    """Something about Kafka."""


class BrokerUnavailableError(LogError):
    """No broker answers at the address."""


class BrokerStartError(LogError):
    """The embedded broker did not come up."""


class TopicNotFoundError(LogError):
    """A topic that does not exist."""


class TopicExistsError(LogError):
    """A topic that exists already."""


class ContractError(HeadraceError):
    """Something about schemas and their registry."""


class RegistryUnavailableError(ContractError):
    """No registry answers at the address."""


class RegistryLoginError(ContractError):
    """The registry does not let this user in."""


class RegistryLogError(ContractError):
    """The log in which the registry keeps its schemas does not answer in time."""


class RegistryRefusedError(ContractError):
    """The registry refused, for a reason that it gives."""


class ContractNotFoundError(ContractError):
    """A subject, a version or an id that the registry does not have."""


class InvalidContractError(ContractError):
    """A schema that can't be read."""


class IncompatibleContractError(ContractError):
    """A schema that breaks the readers or writers of the versions before it."""


class RunError(HeadraceError):
    """Something about a run."""


class CheckpointMismatchError(RunError):
    """The checkpoint was written by another pipeline, or by another shape of this one."""


class AlreadyRunningError(RunError):
    """Another process runs this pipeline on the same checkpoint."""


class UnsupportedModeError(RunError):
    """The mode can't give what the pipeline or the run asks for."""


class QueryFailedError(RunError):
    """Spark stopped the query."""


class SinkError(HeadraceError):
    """Something about a store that a pipeline writes to."""


class SinkUnavailableError(SinkError):
    """A store that does not answer."""


class MissingExtraError(SinkError):
    """A client library that is not installed."""


class DashboardError(HeadraceError):
    """A dashboard that can't be started as asked."""


class PipelineNotFoundError(HeadraceError):
    """`MODULE:NAME` names no pipeline."""


def closest(name: str, names: Iterable[str]) -> str | None:
    """The most similar known name, for "did you mean".

    >>> closest("amuont", ["amount", "card_id"])
    'amount'
    """
    import difflib

    found = difflib.get_close_matches(name, list(names), n=1)
    return found[0] if found else None
