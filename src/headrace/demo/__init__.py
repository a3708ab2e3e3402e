"""The demo: a broker, a generator of card transactions, the fraud job, a view of it, and the books over it all."""
