"""Topics as Parquet datasets: batches published exactly once, small files merged. Used by the job ``archive``."""
