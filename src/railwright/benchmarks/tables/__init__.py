"""Tables in files: Parquet and ORC, read into memory as data frames are."""
