"""Rows into a Postgres table: COPY into a staging table, one merge, and a marker, in one transaction per partition.

The marker is a row (writer, partition, batch). A task locks it first; a batch that is there already is skipped, so a
repeated batch, and a task that wakes up after its successor has committed, change nothing.

Why a transaction per partition and not one for the batch: a connection can't be shared between tasks, so one
transaction would need staging tables that outlive it, a second copy of all rows in one session, and someone to clean up
after a crash. Here a crash leaves nothing behind. A reader may see one partition's rows of a batch before another's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

from headrace.errors import SinkError, SinkUnavailableError, UnknownColumnError
from headrace.pipeline.schema import Column, Schema
from headrace.pipeline.sink import Guarantee
from headrace.sinks.postgres_merge import Merge
from headrace.sinks.postgres_types import postgres_type
from headrace.sinks.protocol import Batch, NeedsCare, Refuse, StoreSink, client

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

MARKERS = "headrace_batches"
ROW_ID = "headrace_id"
"""The column that rows without a key are told apart by."""
_CAREFUL_ROWS = 500
_CONNECT_SECONDS = 10


@dataclass(frozen=True, repr=False)
class PostgresSink(StoreSink):
    """See `hr.sinks.postgres`."""

    kind: ClassVar[str] = "postgres"
    applies_changes: ClassVar[bool] = True

    url: str = field(repr=False)
    table: str
    create: bool
    add_columns: bool

    @property
    def target(self) -> str:
        """The table and the database, without user and password."""
        parts = urlsplit(self.url)
        place = f"{parts.hostname or 'localhost'}{f':{parts.port}' if parts.port else ''}{parts.path}"
        return f"{self.table} at {place}"

    def secrets(self) -> tuple[str, ...]:
        """The password, as written and as read."""
        password = urlsplit(self.url).password
        return () if not password else tuple(dict.fromkeys((self.url, password, unquote(password))))

    @property
    def needs_ids(self) -> bool:
        """Only rows without a key."""
        return not self.key

    def guarantee(self, *, repeats: bool, ids: bool) -> Guarantee:
        """Exactly once: by the marker against repeated batches, by the key or id against repeated records."""
        by = "the key" if self.key else f"the column {ROW_ID}"
        doubled = repeats and not self.key and not ids
        met = f"a repeated record meets its earlier one by {by}"
        if doubled:
            met = "rows that a function made of one event can't be told apart by id: pass key=... to have each once"
        return Guarantee(
            "at least once" if doubled else "exactly once",
            f"rows and a marker (query, partition, batch) commit in one transaction per partition, in {MARKERS}; {met}",
            f"rows of {MARKERS} deleted while a batch is half done; a database restored to an earlier state",
        )

    def check(self, columns: Schema | None) -> None:
        """Whether the database answers, and the table, if it is there, has what the stream needs."""
        with self._connect() as connection:
            found = self._table_columns(connection)
            if not found:
                if not self.create:
                    raise self._missing_table()
                return
            if columns is not None and not self.add_columns:
                self._require(found, self._written(columns.names))
            self._require_unique(connection, found)

    def prepare(self, columns: tuple[Column, ...]) -> None:
        """Make the table and the table of markers, add columns that are allowed to be added."""
        from psycopg import sql

        written = self._written(tuple(c.name for c in columns))
        wanted = {c.name: postgres_type(c.type or "") for c in columns if c.name in written}
        if not self.key:
            wanted[ROW_ID] = "text"
        with self._connect() as connection:
            # Several runs may start at once; CREATE ... IF NOT EXISTS alone may fail then.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('headrace'))")
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (writer text, partition int, batch bigint NOT NULL,"
                    " written timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (writer, partition))"
                ).format(self._markers())
            )
            found = self._table_columns(connection)
            if not found:
                if not self.create:
                    raise self._missing_table()
                parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in wanted.items()]
                key = sql.SQL(", ").join(map(sql.Identifier, self._unique()))
                parts.append(sql.SQL("PRIMARY KEY ({})").format(key))
                connection.execute(
                    sql.SQL("CREATE TABLE {} ({})").format(self._identifier(), sql.SQL(", ").join(parts))
                )
                return
            if not self.add_columns:
                self._require(found, tuple(wanted))
            for name in [n for n in wanted if n not in found]:
                connection.execute(
                    sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(
                        self._identifier(), sql.Identifier(name), sql.SQL(wanted[name])
                    )
                )
            self._require_unique(connection, found)

    def write(
        self, batch: Batch, partition: int, rows: Iterator[pa.RecordBatch], refuse: Refuse
    ) -> dict[str, Any] | None:
        """All rows of the partition in one transaction with the marker."""
        import psycopg

        with self._connect() as connection:
            if not self._take_marker(connection, batch, partition):
                return {"skipped": True}
            kind = batch.changes if self.key else None
            work = Merge(connection, self._identifier(), self._written(batch.names), self.key, self._unique(), kind)
            if batch.careful:
                for chunk in rows:
                    for start in range(0, chunk.num_rows, _CAREFUL_ROWS):
                        work.apply_carefully(chunk.slice(start, _CAREFUL_ROWS), refuse)
            else:
                try:
                    work.apply(rows)
                except (psycopg.DataError, psycopg.IntegrityError) as problem:
                    raise NeedsCare(str(problem)) from problem
            return {"rows": work.rows}

    def _take_marker(self, connection: psycopg.Connection[Any], batch: Batch, partition: int) -> bool:
        """Lock the partition's marker and set it to this batch; False if it is there already."""
        from psycopg import sql

        taken = connection.execute(
            sql.SQL(
                "INSERT INTO {} AS m (writer, partition, batch) VALUES (%s, %s, %s) ON CONFLICT (writer, partition)"
                " DO UPDATE SET batch = excluded.batch, written = now() WHERE m.batch < excluded.batch RETURNING 1"
            ).format(self._markers()),
            (batch.writer, partition, batch.number),
        ).fetchone()
        return taken is not None

    def _connect(self) -> psycopg.Connection[Any]:
        psycopg: Any = client("psycopg", "postgres")
        try:
            connection: Any = psycopg.connect(self.url, connect_timeout=_CONNECT_SECONDS, application_name="headrace")
        except psycopg.OperationalError as problem:
            raise SinkUnavailableError(
                f"the database of sink `{self.name}` does not answer: {self.target}.",
                why=self.mask(str(problem).strip()),
                fix="start it, or correct the address, user and password in hr.sinks.postgres(...).",
            ) from None
        # A time without a zone means UTC here, whatever the server's own zone. Local: a pooled connection is as it was.
        connection.execute("SET LOCAL TIME ZONE 'UTC'")
        return connection  # type: ignore[no-any-return]

    def _table_columns(self, connection: psycopg.Connection[Any]) -> dict[str, bool]:
        """The table's columns, and whether a row can't be written without them; none if there is no such table."""
        rows = connection.execute(
            "SELECT attname, attnotnull AND NOT atthasdef AND attidentity = '' FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self._quoted(),),
        ).fetchall()
        return dict(rows)

    def _require(self, found: dict[str, bool], names: tuple[str, ...]) -> None:
        missing = [name for name in names if name not in found]
        if missing:
            raise UnknownColumnError(
                f"table `{self.table}` has no column `{missing[0]}`.",
                why=f"Its columns: {', '.join(found)}",
                fix="add the column, leave it out with .select(...), or pass add_columns=True to the sink.",
            )
        needed = [name for name, is_needed in found.items() if is_needed and name not in names and name != ROW_ID]
        if needed:
            raise UnknownColumnError(
                f"the stream has no column `{needed[0]}`, which table `{self.table}` can't be without.",
                why="It is NOT NULL and has no default.",
                fix=f'compute it with .with_column("{needed[0]}", ...), or give it a default in the table.',
            )

    def _require_unique(self, connection: psycopg.Connection[Any], found: dict[str, bool]) -> None:
        unique = self._unique()
        rows = connection.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
            " AND a.attnum = ANY(i.indkey) WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL"
            " GROUP BY i.indexrelid",
            (self._quoted(),),
        ).fetchall()
        if not any(set(names) == set(unique) for (names,) in rows):
            columns = ", ".join(f'"{name}"' for name in unique)
            why = "A repeated row finds its earlier one by a unique index, and there is none on these columns."
            add = "" if set(unique) <= set(found) else f"ALTER TABLE {self._quoted()} ADD COLUMN {columns} text; "
            raise SinkError(
                f"table `{self.table}` is not unique by {', '.join(unique)}.",
                why=why,
                fix=f"{add}CREATE UNIQUE INDEX ON {self._quoted()} ({columns})",
            )

    def _missing_table(self) -> SinkError:
        return SinkError(
            f"there is no table `{self.table}` for sink `{self.name}`.",
            why="The sink is declared with create=False.",
            fix="create it, or leave out create=False.",
        )

    def _written(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that rows have in the table: with a key, what kind of change a row is becomes what is done."""
        return tuple(n for n in names if not (self.key and n.lower() == "row_kind"))

    def _unique(self) -> tuple[str, ...]:
        return self.key or (ROW_ID,)

    def _identifier(self) -> Any:
        from psycopg import sql

        return sql.Identifier(*self.table.split("."))

    def _markers(self) -> Any:
        from psycopg import sql

        return sql.Identifier(*self.table.split(".")[:-1], MARKERS)

    def _quoted(self) -> str:
        return ".".join('"' + part.replace('"', '""') + '"' for part in self.table.split("."))
