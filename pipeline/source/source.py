"""``format("pocketmq")``: a topic as a table, in batch and as a stream.

Lives here: the class that Spark asks for readers and writers.
"""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pocketmq.pipeline.options import Options
from pocketmq.pipeline.sink.sink import TopicStreamWriter, TopicWriter
from pocketmq.pipeline.sink.sink_plan import SINK_OPTIONS
from pocketmq.pipeline.source.batch_reader import PushingTopicReader, TopicReader
from pocketmq.pipeline.source.columns import default_schema
from pocketmq.pipeline.source.plans import BATCH_OPTIONS, STREAM_OPTIONS
from pocketmq.pipeline.source.stream_reader import TopicStreamReader


class PocketMQSource(DataSource):
    """The format ``pocketmq``. Options: docs/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pocketmq"

    def schema(self) -> StructType:
        """Return all columns, the map of properties only with ``includeProperties``."""
        known = set(BATCH_OPTIONS) | set(STREAM_OPTIONS) | set(SINK_OPTIONS)
        options = Options(self.options, known)
        return default_schema(with_properties=options.flag("includeProperties", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader."""
        options = Options(self.options, BATCH_OPTIONS)
        kind = PushingTopicReader if options.flag("pushFilters", False) else TopicReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream reader."""
        return TopicStreamReader(Options(self.options, STREAM_OPTIONS), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """Return the batch writer."""
        return TopicWriter(Options(self.options, SINK_OPTIONS), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        """Return the stream writer."""
        return TopicStreamWriter(Options(self.options, SINK_OPTIONS), schema, overwrite)
