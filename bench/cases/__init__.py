"""The cases of the comparison, in the order in which they run: those that share servers follow each other."""

from bench.cases.batches import Batches
from bench.cases.connections import Connections
from bench.cases.draining import Draining
from bench.cases.footprint import Footprint
from bench.cases.latency import Latency
from bench.cases.one_by_one import OneByOne
from bench.cases.overloaded import Overloaded
from bench.cases.reading import Reading
from bench.cases.restarts import Restarts
from bench.cases.sync import ReplicatedSends, SyncFlush
from bench.cases.topics import Topics
from bench.comparison.case import Case

CASES: tuple[Case, ...] = (
    OneByOne(),
    Batches(),
    Reading(),
    Latency(),
    Overloaded(),
    Draining(),
    Connections(),
    Topics(),
    SyncFlush(),
    ReplicatedSends(),
    Restarts(),
    Footprint(),
)
BY_NAME = {case.name: case for case in CASES}
