"""What Apache Beam's Python SDK calls windows, triggers and times of results, in Headrace's words."""

from __future__ import annotations

import ast
from typing import Any

import headrace as hr

# Of this one, the output time of a window is the earliest timestamp plus 100 s, if the combiner asks for it.
CUSTOM_TIMESTAMPS = "CustomTimestampingFixedWindowsWindowFn"


def windowing(text: str) -> tuple[hr.Windowing, bool]:
    """The windows of a `window_fn`, and whether they come with timestamps of their own."""
    name, args, named = _call(ast.parse(text.strip(), mode="eval").body)
    match name:
        case "FixedWindows" | "CustomTimestampingFixedWindowsWindowFn":
            size, offset = _arguments(args, named, size=None, offset=0)
            return hr.tumbling(_span(size), offset=_span(offset)), name == CUSTOM_TIMESTAMPS
        case "SlidingWindows":
            size, period, offset = _arguments(args, named, size=None, period=None, offset=0)
            return hr.hopping(_span(size), every=_span(period), offset=_span(offset)), False
        case "Sessions":
            (gap,) = _arguments(args, named, gap_size=None)
            return hr.session(_span(gap)), False
        case "GlobalWindows":
            return hr.global_window(), False
    raise ValueError(f"unknown window_fn: {text}")


def trigger(text: str) -> hr.Trigger | None:
    """The trigger of a `trigger_fn`; None for the default."""
    expression = ast.parse(text.strip(), mode="eval").body
    return None if _call(expression)[0] in ("Default", "DefaultTrigger") else _trigger(expression)


def result_time(combiner: str, custom: bool) -> hr.ResultTime:
    """The time of a result of a `timestamp_combiner`."""
    match combiner.upper():
        case "OUTPUT_AT_EOW":
            return hr.at_end()
        case "OUTPUT_AT_EARLIEST":
            return hr.at_earliest()
        case "OUTPUT_AT_EARLIEST_TRANSFORMED":
            return hr.at_earliest(plus="100s") if custom else hr.at_earliest()
        case "OUTPUT_AT_LATEST":
            return hr.at_latest()
    raise ValueError(f"unknown timestamp_combiner: {combiner}")


def _trigger(expression: ast.expr) -> hr.Trigger:
    name, args, named = _call(expression)
    match name:
        case "AfterWatermark":
            early, late = _arguments(args, named, early=ast.Constant(None), late=ast.Constant(None))
            return hr.after_watermark(early=_optional(early), late=_optional(late))
        case "AfterCount":
            (count,) = _arguments(args, named, count=None)
            return hr.after_count(_number(count))
        case "AfterProcessingTime":
            (delay,) = _arguments(args, named, delay=0)
            # Without a delay it fires as soon as there is an element.
            return hr.after_processing_time(_span(delay)) if _number(delay) else hr.after_count(1)
        case "Always":
            return hr.each()
        case "Default" | "DefaultTrigger":
            return hr.repeat(hr.after_watermark(late=hr.each()))
        case "Repeatedly":
            (inner,) = _arguments(args, named, underlying=None)
            return hr.repeat(_trigger(inner))
        case "AfterAny":
            return hr.any_of(*map(_trigger, args))
        case "AfterAll":
            return hr.all_of(*map(_trigger, args))
        case "AfterEach":
            return hr.after_each(*map(_trigger, args))
    raise ValueError(f"unknown trigger_fn: {ast.unparse(expression)}")


def _call(expression: ast.expr) -> tuple[str, list[ast.expr], dict[str, ast.expr]]:
    """Name and arguments of a call; empty parentheses may be left out."""
    match expression:
        case ast.Name(id=name):
            return name, [], {}
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            return name, args, {k.arg: k.value for k in keywords if k.arg is not None}
    raise ValueError(f"neither a name nor a call: {ast.unparse(expression)}")


def _arguments(args: list[ast.expr], named: dict[str, ast.expr], **parameters: Any) -> list[Any]:
    """One value per parameter: by position, by name, or the default; None stands for one that must be given."""
    given = dict(zip(parameters, args, strict=False)) | named
    unknown = given.keys() - parameters.keys()
    missing = [name for name, default in parameters.items() if default is None and name not in given]
    if unknown or missing or len(args) > len(parameters):
        raise ValueError(f"arguments are {list(parameters)}; missing: {missing}, unknown: {sorted(unknown)}")
    return [given.get(name, default) for name, default in parameters.items()]


def _optional(expression: ast.expr) -> hr.Trigger | None:
    if isinstance(expression, ast.Constant) and expression.value is None:
        return None
    return _trigger(expression)


def _number(value: Any) -> Any:
    return ast.literal_eval(value) if isinstance(value, ast.expr) else value


def _span(value: Any) -> str:
    return f"{round(_number(value) * 1000)}ms"
