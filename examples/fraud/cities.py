"""Where cards live: cities with their coordinates, and the distances between them."""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt
from typing import NamedTuple


class City(NamedTuple):
    """A place on the globe, in degrees."""

    name: str
    lat: float
    lon: float


CITIES = (
    City("Amsterdam", 52.370, 4.895),
    City("Athens", 37.984, 23.728),
    City("Berlin", 52.520, 13.405),
    City("Boston", 42.360, -71.058),
    City("Brussels", 50.850, 4.352),
    City("Buenos Aires", -34.604, -58.382),
    City("Cairo", 30.044, 31.236),
    City("Cape Town", -33.925, 18.424),
    City("Chicago", 41.878, -87.630),
    City("Delhi", 28.614, 77.209),
    City("Istanbul", 41.008, 28.978),
    City("Lagos", 6.524, 3.379),
    City("Lisbon", 38.722, -9.139),
    City("London", 51.507, -0.128),
    City("Lyon", 45.764, 4.836),
    City("Madrid", 40.417, -3.704),
    City("Melbourne", -37.814, 144.963),
    City("Mexico City", 19.433, -99.133),
    City("Milan", 45.464, 9.190),
    City("Mumbai", 19.076, 72.878),
    City("Nairobi", -1.286, 36.817),
    City("New York", 40.713, -74.006),
    City("Osaka", 34.694, 135.502),
    City("Paris", 48.857, 2.352),
    City("San Francisco", 37.775, -122.419),
    City("Santiago", -33.449, -70.669),
    City("Sao Paulo", -23.551, -46.633),
    City("Seoul", 37.567, 126.978),
    City("Singapore", 1.352, 103.820),
    City("Sydney", -33.869, 151.209),
    City("Tokyo", 35.682, 139.692),
    City("Toronto", 43.653, -79.383),
    City("Vienna", 48.208, 16.374),
    City("Warsaw", 52.230, 21.012),
)

EARTH_RADIUS_KM = 6371.0


def distance_km(lat_a: float, lon_a: float, lat_b: float, lon_b: float) -> float:
    """The great-circle distance.

    >>> round(distance_km(48.857, 2.352, 51.507, -0.128))  # Paris to London
    343
    """
    phi_a, phi_b = radians(lat_a), radians(lat_b)
    half = sin((phi_b - phi_a) / 2) ** 2 + cos(phi_a) * cos(phi_b) * sin(radians(lon_b - lon_a) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(min(1.0, sqrt(half)))


def between(near_km: float, far_km: float) -> tuple[tuple[tuple[int, float], ...], ...]:
    """For each city, the others at a distance in [near, far], as (index, km)."""
    return tuple(
        tuple(
            (index, km)
            for index, there in enumerate(CITIES)
            if there is not here and near_km <= (km := distance_km(here.lat, here.lon, there.lat, there.lon)) <= far_km
        )
        for here in CITIES
    )
