"""The sessions and programs of the documents beside the README, run as slow_docs.py says."""
import slow_docs

slow_docs.main(others=True)
