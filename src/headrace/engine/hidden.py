"""The columns that travel with each row beside the user's own. Users can't have columns of these names."""

from __future__ import annotations

ROUTE = "__hr_route"
REASON = "__hr_reason"
TIME = "__hr_time"
"""Event time in milliseconds."""
EVENT_TIME = "__hr_event_time"
"""Event time as the watermark sees it: null where a row must not move it."""
PARTITION = "__hr_partition"
OFFSET = "__hr_offset"
TIMESTAMP = "__hr_timestamp"
"""The record's own Kafka timestamp, in milliseconds."""
CLAIM = "__hr_claim"
"""What a control record claims about event time, in milliseconds."""
RECORD_KEY = "__hr_record_key"
RAW = "__hr_raw"
"""The original bytes, for records that did not become rows."""
INTAKE_REASON = "__hr_intake_reason"
NO_PAYLOAD = "the payload is null"
"""The one reason for which a dead letter has no value either."""

CARRIED = (ROUTE, TIME, PARTITION, OFFSET, TIMESTAMP, RECORD_KEY, RAW, INTAKE_REASON)
"""What goes through an operator with the row."""

WINDOW = "__hr_w_"
"""What the names of a window's columns begin with until they are written."""
ARRIVED = f"{WINDOW}arrived"
"""The latest record timestamp among the events of a window's result."""

ID = "__hr_id"
"""The id of a record that a sink reads."""

META = "_headrace"
"""All of the above as one struct, as a function given to `.apply` sees them."""
