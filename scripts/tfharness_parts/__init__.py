"""__init__ - the package tfharness_parts: the parts of tfharness.py, which loads them from the folder beside it."""
