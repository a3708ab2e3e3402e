"""Rows through a staging table into a Postgres table, within a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.sinks.postgres_types import to_csv
from headrace.sinks.protocol import ID, TAKES_AWAY, Refuse

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import sql

_STAGING = "headrace_staging"
_NUMBER = "headrace_number"
_KIND = "headrace_kind"


class Merge:
    """The rows of one transaction, through a staging table into the table."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        table: sql.Identifier,
        columns: tuple[str, ...],
        key: tuple[str, ...],
        unique: tuple[str, ...],
        kind: str | None,
    ) -> None:
        """`unique` is the key, or the column with the row's id; `kind` the column with the kind of change, if any."""
        from psycopg import sql

        self._connection = connection
        self._key = key
        self._kind = kind
        self._columns = columns
        self.rows = 0
        listed = sql.SQL(", ").join(map(sql.Identifier, columns if key else (*columns, *unique)))
        staging = sql.Identifier(_STAGING)
        connection.execute(
            sql.SQL(
                "CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {}, 0::bigint AS {}, ''::text AS {} FROM {} LIMIT 0"
            ).format(staging, listed, sql.Identifier(_NUMBER), sql.Identifier(_KIND), table)
        )
        self._copy = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(staging)
        by = sql.SQL(", ").join(map(sql.Identifier, unique))
        # In the order of the key: two tasks that meet at the same rows lock them in the same order.
        last = sql.SQL("SELECT DISTINCT ON ({key}) * FROM {staging} ORDER BY {key}, {number} DESC").format(
            key=by, staging=staging, number=sql.Identifier(_NUMBER)
        )
        others = [name for name in columns if name not in key]
        update: Any = sql.SQL("DO NOTHING")
        if key and others:
            pairs = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
            update = sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(pairs))
        gone = sql.SQL(", ").join(map(sql.Literal, TAKES_AWAY))
        word = sql.Identifier(_KIND)
        self._put = sql.SQL(
            "INSERT INTO {table} ({listed}) SELECT {listed} FROM ({last}) s WHERE {kind} IS NULL OR {kind} NOT IN"
            " ({gone}) ON CONFLICT ({key}) {update}"
        ).format(table=table, listed=listed, last=last, kind=word, gone=gone, key=by, update=update)
        same = sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in unique)
        self._take = sql.SQL("DELETE FROM {table} t USING ({last}) s WHERE {same} AND {kind} IN ({gone})").format(
            table=table, last=last, same=same, kind=word, gone=gone
        )
        self._analyze = sql.SQL("ANALYZE {}").format(staging)
        self._clear = sql.SQL("TRUNCATE {}").format(staging)

    def apply(self, rows: Iterator[pa.RecordBatch]) -> None:
        """Stage the rows, then merge: of a key's rows the last one counts."""
        takes_away = False
        with self._connection.cursor().copy(self._copy) as copy:
            for chunk in rows:
                staged, has_changes = self._staged(chunk)
                takes_away = takes_away or has_changes
                copy.write(to_csv(staged))
                self.rows += chunk.num_rows
        if takes_away:
            # A join needs to know how large its sides are; the server knows nothing of a new table.
            self._connection.execute(self._analyze)
            self._connection.execute(self._take)
        self._connection.execute(self._put)

    def apply_carefully(self, rows: pa.RecordBatch, refuse: Refuse) -> None:
        """Apply what the table takes; what it refuses is found by halves."""
        import psycopg

        try:
            with self._connection.transaction():
                self.apply(iter((rows,)))
                self._connection.execute(self._clear)
        except (psycopg.DataError, psycopg.IntegrityError) as problem:
            if rows.num_rows == 1:
                refuse(rows, f"the table refuses the row: {str(problem).strip().splitlines()[0]}")
                return
            half = rows.num_rows // 2
            self.apply_carefully(rows.slice(0, half), refuse)
            self.apply_carefully(rows.slice(half), refuse)

    def _staged(self, chunk: pa.RecordBatch) -> tuple[pa.RecordBatch, bool]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = [chunk.column(name) for name in self._columns]
        if not self._key:
            columns.append(chunk.column(ID))
        columns.append(pa.array(np.arange(self.rows, self.rows + chunk.num_rows)))
        kind = pa.nulls(chunk.num_rows, pa.string()) if self._kind is None else chunk.column(self._kind)
        columns.append(kind)
        takes_away = self._kind is not None and bool(pc.any(pc.is_in(kind, pa.array(TAKES_AWAY))).as_py())
        return pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))]), takes_away
