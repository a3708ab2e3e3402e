"""Kafka: the embedded broker, topics, and the settings of producers and consumers."""
