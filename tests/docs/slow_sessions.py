"""The sessions and programs of the documents beside the README, run as slow_docs.py says."""
import test_docs

test_docs.main(others=True)
