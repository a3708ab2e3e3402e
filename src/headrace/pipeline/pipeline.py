"""A pipeline: the declaration of a job, from topics to topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.errors import InvalidAlarmError, InvalidPipelineError, InvalidSchemaError, PipelineError
from headrace.pipeline.alarms import Alarm, parse_alarm
from headrace.pipeline.arguments import Reading
from headrace.pipeline.checks import problems_of
from headrace.pipeline.contracts import Contract, as_contract
from headrace.pipeline.location import caller_location
from headrace.pipeline.nodes import Node, Read, SinkWrite, Write
from headrace.pipeline.plan import Plan, Problem, Stateful
from headrace.pipeline.schema import Schema, as_schema
from headrace.pipeline.stream import Stream


class Pipeline:
    """What a job reads, does and writes. Declaring it runs nothing; `headrace run MODULE:NAME` runs it.

    The name is the identity of the job: its checkpoint and its internal topics carry it.

    >>> import headrace as hr
    >>> pipeline = hr.Pipeline("copy-clicks")
    >>> pipeline.read("clicks", schema="user STRING, at TIMESTAMP").write("clicks-copy")
    >>> pipeline.check()
    """

    def __init__(self, name: str) -> None:
        self._plan = Plan(name, caller_location())
        self._alarms: list[Alarm] = []

    @property
    def name(self) -> str:
        """The name."""
        return self._plan.name

    def read(
        self,
        topic: str,
        schema: str | type | None = None,
        *,
        contract: str | Contract | None = None,
        max_bytes: int | None = None,
    ) -> Stream:
        """The rows of a topic. With a `schema` (Spark DDL or a dataclass) payloads are JSON; with a `contract`, the
        name of a subject of the schema registry or `hr.contract(...)`, they are in Confluent's wire format.

        A payload of more than `max_bytes` is not parsed: it is a dead letter.

        >>> import headrace as hr
        >>> clicks = hr.Pipeline("demo").read("clicks", schema="user STRING, at TIMESTAMP")
        >>> dict(clicks.schema)
        {'user': 'string', 'at': 'timestamp'}
        >>> payments = hr.Pipeline("demo").read("payments", contract="payments-value")
        >>> payments.schema is None  # until the registry is asked, when the pipeline runs
        True
        """
        location = caller_location()
        if max_bytes is not None and (not isinstance(max_bytes, int) or max_bytes < 1):
            wrong = PipelineError(f"max_bytes={max_bytes!r} is no size.", fix="give a number of bytes, like 65536.")
            self._plan.report(Problem.of(wrong, location, f'.read("{topic}"): '))
            max_bytes = None
        if contract is not None:
            agreed = self._contract(contract, topic, alone=schema is None)
            columns = agreed.columns() or Schema(())
            return Stream(self._plan, self._plan.add(Read(topic, columns, agreed, max_bytes, location=location)))
        try:
            columns = as_schema(schema)
        except InvalidSchemaError as problem:
            self._plan.report(Problem.of(problem, location, f'.read("{topic}"): '))
            columns = Schema(())
        return Stream(self._plan, self._plan.add(Read(topic, columns, None, max_bytes, location=location)))

    def _contract(self, value: object, topic: str, *, alone: bool) -> Contract:
        reading = Reading(".read")
        if not alone:
            why, fix = "The contract says what the payloads are.", "keep one of the two."
            reading.refuse(f'.read("{topic}") has both a schema and a contract.', why, fix)
        agreed = as_contract(value, reading)
        for problem in reading.problems:
            self._plan.report(Problem.of(problem, caller_location()))
        return agreed

    def alarm(self, *conditions: str) -> None:
        """Conditions on what is measured of a run, for the dashboard to watch beside its defaults.

        >>> import headrace as hr
        >>> pipeline = hr.Pipeline("demo")
        >>> pipeline.alarm("p99 > 500ms for 1m", "no events for 2m")
        >>> [alarm.metric for alarm in pipeline.alarms]
        ['p99', 'idle_seconds']
        """
        location = caller_location()
        for condition in conditions:
            try:
                self._alarms.append(parse_alarm(condition))
            except InvalidAlarmError as problem:
                self._plan.report(Problem.of(problem, location, ".alarm: "))

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The conditions that were declared with `alarm`."""
        return tuple(self._alarms)

    def check(self) -> None:
        """Raise `InvalidPipelineError` with all that is wrong, in the order of the lines; no JVM is needed.

        >>> import headrace as hr
        >>> pipeline = hr.Pipeline("demo")
        >>> pipeline.read("clicks", schema="user STRING").where("user is not null").write("clicks")
        >>> pipeline.check()
        Traceback (most recent call last):
            ...
        headrace.errors.InvalidPipelineError: pipeline `demo` has 1 problem.
        ...
        """
        problems = problems_of(self._plan)
        if problems:
            raise InvalidPipelineError(self.name, [problem.error(self.name) for problem in problems])

    def rebuilt(self, changed: Callable[[Node], Node], problems: Iterable[Problem] = ()) -> Pipeline:
        """The same pipeline with each node as `changed` makes it, for what is known only when it runs."""
        copy = Pipeline(self.name)
        copy._plan = self._plan.rebuilt(changed)
        copy._alarms = list(self._alarms)
        for problem in problems:
            copy._plan.report(problem)
        return copy

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every declared node, each after its input."""
        return tuple(self._plan.nodes)

    @property
    def reads(self) -> tuple[Read, ...]:
        """What it reads."""
        return self._plan.all(Read)

    @property
    def steps(self) -> tuple[Stateful, ...]:
        """The steps that keep state."""
        return self._plan.stateful

    @property
    def writes(self) -> tuple[Write, ...]:
        """What it writes to topics."""
        return self._plan.all(Write)

    @property
    def sink_writes(self) -> tuple[SinkWrite, ...]:
        """What it writes to stores."""
        return self._plan.all(SinkWrite)

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {len(self.reads)} reads, {len(self.writes)} writes>"
