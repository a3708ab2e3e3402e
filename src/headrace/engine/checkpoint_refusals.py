"""Why a run can't continue from a checkpoint, in words: what is wrong, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import AlreadyRunningError, CheckpointMismatchError

_ANEW = "start anew from the log with another --checkpoint DIR\n(the topic is replayed from its beginning)."


@dataclass(frozen=True)
class Refusals:
    """Those of one checkpoint to one pipeline."""

    folder: Path
    pipeline: str

    def in_use(self, owner: str) -> AlreadyRunningError:
        """Another process has it."""
        return AlreadyRunningError(
            f"pipeline `{self.pipeline}` is running already (process {owner}).",
            why=f"Two runs on one checkpoint would corrupt its state: {self.folder}",
            fix=f"stop process {owner}, or run a second copy with its own --checkpoint DIR.",
            pipeline=self.pipeline,
        )

    def newer(self, note: Path, unknown: Iterable[str]) -> CheckpointMismatchError:
        """Its note has what this version does not know."""
        return self._mismatch(
            "the checkpoint was written by a newer Headrace than this one.",
            f"{note} has {', '.join(unknown)}, which this version does not know.",
            f"run the pipeline with the Headrace that wrote it, or {_ANEW}",
        )

    def damaged(self, note: Path, problem: str) -> CheckpointMismatchError:
        """Its note can't be read."""
        return self._mismatch(
            "it can't be told whose checkpoint this is: its note is damaged.",
            f"{note}: {problem}",
            f"restore {note.name} from a copy, or {_ANEW}",
        )

    def other_pipeline(self, owner: str) -> CheckpointMismatchError:
        """It belongs to another pipeline."""
        return self._mismatch(
            f"the checkpoint belongs to pipeline `{owner}`, not to `{self.pipeline}`.",
            f"Checkpoint: {self.folder}",
            "give this pipeline its own --checkpoint DIR.",
        )

    def other_cluster(self, known: str, here: str) -> CheckpointMismatchError:
        """It was made of another log."""
        return self._mismatch(
            f"the checkpoint belongs to the Kafka cluster `{known}`, and this run is on `{here}`.",
            "It says how far the topics of that cluster have been read, and has the state of their events: neither\n"
            "means anything on another. An embedded broker whose data was deleted is another cluster too: its log\n"
            f"has begun anew.\nCheckpoint: {self.folder}",
            "give the run on this cluster its own --checkpoint DIR (it begins at the beginning of the topics),\n"
            "or name the cluster of before with --bootstrap HOST:PORT.",
        )

    def other_shape(self, query: str, differences: Iterable[str]) -> CheckpointMismatchError:
        """Its state can't be read by the query as it is now."""
        return self._mismatch(
            f"the state of query `{query}` was written by another shape of pipeline `{self.pipeline}`.",
            "\n".join((*differences, f"Checkpoint: {self.folder}")),
            f"undo the change, or {_ANEW}",
        )

    def other_layout(self, *, newer: bool) -> CheckpointMismatchError:
        """Its state lies in another order than this version reads it in."""
        other = "a newer" if newer else "an earlier"
        return self._mismatch(
            f"the state in the checkpoint was written by {other} version of Headrace.",
            "It lies there in another order: this version would take one value for another.\n"
            f"Checkpoint: {self.folder}",
            f"run it with that version, or {_ANEW}",
        )

    def lost_state(self, query: str, queries: Iterable[str]) -> CheckpointMismatchError:
        """It has state that no query would read."""
        return self._mismatch(
            f"the checkpoint has the state of query `{query}`, which pipeline `{self.pipeline}` no longer has.",
            "Stateful steps were added, removed or renamed, so the queries are not the same any more.\n"
            f"Queries now: {', '.join(queries)}\nCheckpoint: {self.folder}",
            f"undo the change, or {_ANEW}",
        )

    def lost_query(self, known: str, new: str, source: str) -> CheckpointMismatchError:
        """A query without state would be followed by one that begins at the beginning."""
        return self._mismatch(
            f"query `{known}` of the checkpoint is gone, and a new query `{new}` reads its topic, `{source}`.",
            self._again(source),
            "undo the change, or put what is new into a second pipeline;\n"
            f"if what `{known}` writes is given up for good, delete {self.folder / 'queries' / known};\n"
            f"or {_ANEW}",
        )

    def moved_output(self, known: str, new: str, source: str, topic: str) -> CheckpointMismatchError:
        """What a query without state has written would be written by one that begins at the beginning."""
        return self._mismatch(
            f"topic `{topic}`, which query `{known}` has written so far, would be written by a new query, `{new}`.",
            self._again(source),
            "declare the streams in the order of before, write to another topic,\n"
            f"or put what is new into a second pipeline; or {_ANEW}",
        )

    def left_control(self, query: str, topic: str) -> CheckpointMismatchError:
        """Spark takes a topic that a query no longer reads for one whose data was lost."""
        return self._mismatch(
            f"query `{query}` has read control records, and now has no use for them.",
            "When the checkpoint was written, its event time had close_idle=..., hr.adaptive(...), hr.perfect() or\n"
            "hr.per_partition(...), or a trigger of it waited for the clock; now it has none of these.\n"
            f"The checkpoint has its position in `{topic}`: Spark can't leave a topic.\n"
            f"Checkpoint: {self.folder}",
            f"undo the change (another of these will do too), or {_ANEW}",
        )

    def _again(self, source: str) -> str:
        return (
            f"A new query begins at the beginning of `{source}`, so all of its results would be written once more,\n"
            "under other ids. Queries without state are named after what they read, and by the order in which they\n"
            f"are declared (by earlier versions also by their line in the file).\nCheckpoint: {self.folder}"
        )

    def _mismatch(self, what: str, why: str, fix: str) -> CheckpointMismatchError:
        return CheckpointMismatchError(what, why=why, fix=fix, pipeline=self.pipeline)
