"""test_runner - what the tests ask of their runner: a group's tests are in one worker, or each worker makes what they share."""

import os

import pytest


@pytest.mark.xdist_group('together')
def test_a_group_stays_together(request):
    """The runner goes by the group's name behind the test's."""
    if 'PYTEST_XDIST_WORKER' in os.environ:
        assert request.node.nodeid.endswith('@together')
