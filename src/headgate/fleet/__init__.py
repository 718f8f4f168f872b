"""One batch over many workers of an engine that is not ours (Ray, Spark, plain processes), seen and stopped as one."""
