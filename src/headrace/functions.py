"""Functions on columns for streaming jobs. They return Spark's own Columns, and import Spark only when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

_EARTH_RADIUS_KM = 6371.0088  # the mean radius


def speed_kmh(previous: str, lat: str = "lat", lon: str = "lon", time: str = "occurred_at") -> Column:
    """How fast one would have to travel, in km/h, from the place of an earlier event to that of this one.

    `previous` names a struct column with the earlier event's place and time, as `hr.latest("lat", "lon", "occurred_at",
    back=1)` gives it. The distance is that of the great circle. Null if there is no earlier event. At least one second
    is taken to have passed, so that two places at the same moment give a high but finite speed.

    `time` is a TIMESTAMP column; `lat` and `lon` are in degrees.

    >>> from pyspark.sql import functions as F
    >>> impossible_travel = speed_kmh("here") > 500
    """
    from pyspark.sql import functions as F

    def earlier(field: str) -> Column:
        return F.col(previous).getField(field)

    here, there = F.radians(F.col(lat)), F.radians(earlier(lat))
    north = F.sin((here - there) / 2)
    east = F.sin((F.radians(F.col(lon)) - F.radians(earlier(lon))) / 2)
    chord = north * north + F.cos(here) * F.cos(there) * east * east
    # Rounding can push the chord of antipodes just past 1, where asin is not defined. `F.least` would turn null into 1.
    chord = F.when(chord > 1.0, F.lit(1.0)).otherwise(chord)
    kilometres = F.asin(F.sqrt(chord)) * (2 * _EARTH_RADIUS_KM)
    seconds = (F.unix_micros(F.col(time)) - F.unix_micros(earlier(time))) / F.lit(1_000_000.0)
    seconds = F.when(seconds < 1.0, F.lit(1.0)).otherwise(seconds)
    return kilometres / seconds * 3600.0
