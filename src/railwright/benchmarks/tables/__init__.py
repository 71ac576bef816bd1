"""Tables in Parquet and ORC files, read into memory as data frames are."""
