"""What a window step keeps, for how long, and when its results come, in words: for `headrace explain`."""

from __future__ import annotations

from headrace.pipeline.columns import expression_text
from headrace.pipeline.durations import format_duration
from headrace.pipeline.nodes import EventTime, KeyBy, Panes, Window
from headrace.pipeline.plan import nearest
from headrace.pipeline.trigger_nodes import (
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    AnyOf,
    Repeat,
    Trigger,
    When,
)
from headrace.pipeline.watermarks import Adaptive, Perfect, PerPartition
from headrace.pipeline.windows import WindowKind

_JOINED: dict[type[Trigger], str] = {AnyOf: " or ", AllOf: " and ", AfterEach: ", then "}


def state_of(step: Window) -> str:
    """What a window step keeps, and until when."""
    keyed = nearest(step, KeyBy) is not None
    windows = step.windowing
    if windows.kind is WindowKind.SLIDING:
        span = format_duration(windows.size_ms or 0)
        return f"events of the last {span} before the watermark{', per key' if keyed else ''}"
    buffer = "one buffer"
    if step.panes is Panes.RETRACTING:
        buffer = "one buffer and the last result"
    of = "session" if windows.kind is WindowKind.SESSION else "window"
    owner = f" per {'key and ' if keyed else ''}open {of}"
    if windows.kind is WindowKind.GLOBAL:
        owner = " per key" if keyed else ""
    if windows.size_ms is not None and windows.slide_ms is not None:
        owner += f" ({-(-windows.size_ms // windows.slide_ms)} at a time)"
    emptied = ", emptied with each result" if step.panes is Panes.DISCARDING else ""
    return f"{buffer}{owner}{emptied}, kept {_until(step)}"


def retention_ms(step: Window) -> int | None:
    """How far before the watermark the state of a window step reaches; None if the declaration sets no limit."""
    size = step.windowing.size_ms
    return None if size is None else size + step.allowed_lateness_ms


def results_of(step: Window) -> str:
    """When the results of a window step come, and how long after the end of the window."""
    if step.windowing.kind is WindowKind.SLIDING:
        return "one with each event, when it comes"
    text = _phrase(step.trigger, step)
    on_time_only = isinstance(step.trigger, AfterWatermark) and not step.allowed_lateness_ms
    if step.trigger.may_finish() and not on_time_only:
        text += "; then no more, what still comes for the window is late"
    return text


def watermark_of(time: EventTime) -> str:
    """Where the watermark is."""
    latest = f"the latest `{time.column}`"
    bound = format_duration(time.out_of_order_ms)
    match time.watermark:
        case Adaptive() as adaptive:
            lag = f"as far behind {latest} as {adaptive.quantile:g} of the events lately came at most"
            return f"{lag}, at least {format_duration(adaptive.floor_ms)}, at most {bound}"
        case PerPartition() as partitions:
            idle = format_duration(partitions.idle_ms)
            return f"{bound} behind {latest} of the slowest partition, without those that were silent for {idle}"
        case Perfect():
            return "nowhere until the input ends (in replay; a live run has no end), then past every event"
    return f"{bound} behind {latest}"


def _until(step: Window) -> str:
    lateness = step.allowed_lateness_ms
    match step.windowing.kind:
        case WindowKind.GLOBAL:
            return "for ever"
        case WindowKind.SESSION:
            return f"until {format_duration((step.windowing.gap_ms or 0) + lateness)} after its last event"
    return f"until {f'{format_duration(lateness)} after ' if lateness else ''}its end"


def _end(step: Window) -> str:
    """When the watermark passes the end of a window."""
    time = nearest(step, EventTime)
    if time is not None and isinstance(time.watermark, Perfect):
        return "when the input ends (in replay; a live run has no end)"
    match step.windowing.kind:
        case WindowKind.GLOBAL:
            return "at the end of the stream"
        case WindowKind.SESSION:
            end = f"{format_duration(step.windowing.gap_ms or 0)} after the session's last event"
        case _:
            end = "at the window's end"
    if time is None:
        return end
    idle = "" if time.close_idle_ms is None else f" or {format_duration(time.close_idle_ms)} of silence"
    bound = f" + {format_duration(time.out_of_order_ms)}" if time.out_of_order_ms else ""
    match time.watermark:
        case Adaptive() as adaptive:
            low, high = format_duration(adaptive.floor_ms), format_duration(adaptive.ceiling_ms)
            return f"{end} + {low} to {high} (adaptive watermark{idle})"
        case PerPartition():
            return f"{end}{bound} (watermark of the slowest partition{idle})"
    return f"{end}{bound} (watermark{idle})"


def _phrase(trigger: Trigger, step: Window) -> str:
    match trigger:
        case AfterWatermark():
            parts = [] if trigger.early is None else [f"early {_part(trigger.early, step)}"]
            parts.append(_end(step))
            if trigger.late is not None and step.allowed_lateness_ms:
                parts.append(f"late {_part(trigger.late, step)}")
            return ", ".join(parts)
        case Repeat():
            return _repeated(trigger.of, step)
        case AfterProcessingTime():
            return f"{format_duration(trigger.delay_ms)} after the first event"
        case AfterCount():
            return f"after {trigger.n} event{'s' if trigger.n > 1 else ''}"
        case When():
            return f"when {expression_text(trigger.condition)}"
        case AnyOf() | AllOf() | AfterEach():
            return _JOINED[type(trigger)].join(_part(part, step) for part in trigger.of)
    raise AssertionError(f"no such trigger: {trigger}")


def _repeated(trigger: Trigger, step: Window) -> str:
    match trigger:
        case AfterProcessingTime():
            return f"every {format_duration(trigger.delay_ms)}"
        case AfterCount():
            return "each" if trigger.n == 1 else f"every {trigger.n} events"
        case When():
            return f"whenever {expression_text(trigger.condition)}"
        case AfterWatermark() | Repeat():
            return _phrase(trigger, step)
    return f"again and again {_part(trigger, step)}"


def _part(trigger: Trigger, step: Window) -> str:
    """A trigger within another one."""
    text = _phrase(trigger, step)
    several = isinstance(trigger, AfterWatermark | AnyOf | AllOf | AfterEach)
    return f"({text})" if several else text
