"""Numbers of one process: counted for almost nothing, shown as Prometheus text when asked.

A process works on one event loop, so that a count is an addition to a dict; the locks of the
client library would cost more than what they count. It is used to write the text only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, product
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "noetl_"
OTHER: Final = "other"
MOST_SETS: Final = 1_000
"""Label sets of one series; what comes after is counted as `other`."""
SECONDS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
SPANS: Final = ("exported", "dropped", "failed")
"""What becomes of a span: a collector took it; it was one too many; nobody took it."""
SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)

Labels = tuple[str, ...]
Closed = Mapping[str, Iterable[str]]
_NO_LABELS: Final[Closed] = {}


class Series(ABC):
    """What all kinds of series share: a name, label names, and the sets that stand at 0."""

    def __init__(self, name: str, meaning: str, labels: Closed = _NO_LABELS) -> None:
        self.name = PREFIX + name
        self.meaning = meaning
        self.labels = tuple(labels)
        self.first = list(product(*(tuple(values) for values in labels.values())))

    def _other(self, count: int) -> Labels | None:
        return (OTHER,) * len(self.labels) if count >= MOST_SETS else None

    @abstractmethod
    def family(self) -> Metric:
        """The series as it stands now."""


class Counter(Series):
    """Counts up."""

    def __init__(self, name: str, meaning: str, labels: Closed = _NO_LABELS) -> None:
        super().__init__(name, meaning, labels)
        self._values: dict[Labels, float] = dict.fromkeys(self.first, 0.0)

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Count."""
        values = self._values
        if labels not in values:
            labels = self._other(len(values)) or labels
            values.setdefault(labels, 0.0)
        values[labels] += by

    def replace(self, values: Mapping[Labels, float]) -> None:
        """Show what somebody else has counted; the closed sets stay."""
        self._values.update(values)

    def value(self, *labels: str) -> float:
        """How much was counted."""
        return self._values.get(labels, 0.0)

    def family(self) -> CounterMetricFamily:
        """The series as it stands now."""
        made = CounterMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, value in self._values.items():
            made.add_metric(labels, value)
        return made


class Gauge(Series):
    """Goes up and down; `source` is asked when the text is written."""

    def __init__(
        self,
        name: str,
        meaning: str,
        labels: Closed = _NO_LABELS,
        *,
        source: Callable[[], Mapping[Labels, float]] | None = None,
    ) -> None:
        super().__init__(name, meaning, labels)
        self._values: dict[Labels, float] = dict.fromkeys(self.first, 0.0)
        self.source = source

    def set(self, value: float, *labels: str) -> None:
        """Show a value."""
        values = self._values
        if labels not in values:
            labels = self._other(len(values)) or labels
        values[labels] = value

    def replace(self, values: Mapping[Labels, float]) -> None:
        """Show these values; the closed sets stay, at 0."""
        self._values = dict.fromkeys(self.first, 0.0) | dict(values)

    def value(self, *labels: str) -> float:
        """What is shown."""
        return self._values.get(labels, 0.0)

    def family(self) -> GaugeMetricFamily:
        """The series as it stands now."""
        if self.source is not None:
            self.replace(self.source())
        made = GaugeMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, value in self._values.items():
            made.add_metric(labels, value)
        return made


class Histogram(Series):
    """Counts how often a value was how large."""

    def __init__(
        self,
        name: str,
        meaning: str,
        labels: Closed = _NO_LABELS,
        *,
        bounds: tuple[float, ...] = SECONDS,
    ) -> None:
        super().__init__(name, meaning, labels)
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {set_: self._empty() for set_ in self.first}
        self._sums: dict[Labels, float] = dict.fromkeys(self.first, 0.0)

    def _empty(self) -> list[int]:
        return [0] * (len(self._bounds) + 1)

    def open(self, *labels: str) -> None:
        """Show a label set before its first value."""
        self._counts.setdefault(labels, self._empty())
        self._sums.setdefault(labels, 0.0)

    def observe(self, value: float, *labels: str) -> None:
        """Note a value."""
        counts = self._counts.get(labels)
        if counts is None:
            labels = self._other(len(self._counts)) or labels
            self.open(*labels)
            counts = self._counts[labels]
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def count(self, *labels: str) -> int:
        """How many values were noted."""
        return sum(self._counts.get(labels, ()))

    def quantile(self, part: float, *labels: str) -> float:
        """The bound that a part of the values does not pass; 0 without values."""
        counts = self._counts.get(labels, [])
        wanted = part * sum(counts)
        for bound, below in zip(self._bounds, accumulate(counts), strict=False):
            if below >= wanted > 0:
                return bound
        return self._bounds[-1] if wanted else 0.0

    def family(self) -> HistogramMetricFamily:
        """The series as it stands now."""
        made = HistogramMetricFamily(self.name, self.meaning, labels=self.labels)
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for labels, counts in self._counts.items():
            buckets = [
                (name, float(below)) for name, below in zip(names, accumulate(counts), strict=True)
            ]
            made.add_metric(labels, buckets, self._sums[labels])
        return made


S = TypeVar("S", bound=Series)


class Metrics(Collector):
    """Every series of one process, in a registry of its own."""

    def __init__(self, component: str, version: str) -> None:
        self._series: dict[str, Series] = {}
        self._build = (f"{PREFIX}{component}_build", version)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all series, in order."""
        return tuple(self._series)

    def counter(self, name: str, meaning: str, labels: Closed = _NO_LABELS) -> Counter:
        """A series that counts up."""
        return self.add(Counter(name, meaning, labels))

    def gauge(
        self,
        name: str,
        meaning: str,
        labels: Closed = _NO_LABELS,
        *,
        source: Callable[[], Mapping[Labels, float]] | None = None,
    ) -> Gauge:
        """A series that goes up and down."""
        return self.add(Gauge(name, meaning, labels, source=source))

    def histogram(
        self,
        name: str,
        meaning: str,
        labels: Closed = _NO_LABELS,
        *,
        bounds: tuple[float, ...] = SECONDS,
    ) -> Histogram:
        """A series of values by size."""
        return self.add(Histogram(name, meaning, labels, bounds=bounds))

    def add(self, series: S) -> S:
        """Show a series that was made elsewhere, too."""
        self._series[series.name] = series
        return series

    def collect(self) -> Iterator[Metric]:
        """Every series as it stands now."""
        name, version = self._build
        yield InfoMetricFamily(name, "Which build this is.", {"version": version})
        for series in self._series.values():
            yield series.family()

    def render(self) -> bytes:
        """The text that a scraper reads."""
        return generate_latest(self._registry)
