"""The dashboard of the demo, as a worker: `python -m headrace.demo.page OPTIONS`."""

from __future__ import annotations

import json
import sys

from headrace.demo.worker import Owner
from headrace.errors import PortTakenError
from headrace.ops.alarming import Alarms
from headrace.ops.watch import KafkaSource, Watch
from headrace.ops.web.server import Address, Dashboard


def main(arguments: list[str]) -> None:
    """Serves until told to stop, or until its owner is gone."""
    options = json.loads(arguments[0])
    owner = Owner()
    watch = Watch(KafkaSource(options["bootstrap"]), Alarms())
    try:
        dashboard = Dashboard(watch, Address(port=options["port"]))
    except PortTakenError:
        dashboard = Dashboard(watch, Address(port=0))
    with dashboard:
        owner.report({"url": dashboard.url})
        owner.stopping.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
