"""One quota, many processes: what they find in a store, what they say to it, and how they learn together."""
