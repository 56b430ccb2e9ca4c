"""test_runner - the test runner's promise: the tests of a group run on one worker, so they share their fixtures."""

import os

import pytest


@pytest.mark.xdist_group('together')
def test_a_group_stays_together(request):
    """xdist finds a test's group by the suffix of its id."""
    if 'PYTEST_XDIST_WORKER' in os.environ:
        assert request.node.nodeid.endswith('@together')
