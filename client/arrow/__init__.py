"""Columns instead of objects: Arrow batches to records and records to Arrow batches, without Python work for each row.

``arrow_records`` and ``row_records`` build records for ``Producer.send_arrow``; ``packed`` holds compressed bodies;
``arrow`` and ``arrow_properties`` make the columns of ``PullConsumer.poll_arrow``. pyarrow is imported on first use.
"""
