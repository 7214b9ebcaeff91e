"""Settings for the whole suite: the same examples in every run, and no deadline on a busy machine."""

from hypothesis import settings

# The scripts in data/ wrote the golden values and need libraries that the tests do not.
collect_ignore_glob = ["data/*"]

settings.register_profile("npformer", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("npformer")
