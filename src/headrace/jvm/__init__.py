"""The Java side of the machine: finding a JVM, fetching jars, starting processes that do not outlive their owner."""
