"""The JVM operators: Scala sources, and what builds them."""
