"""Tool calls on the hosts of a fleet: the argument ``hosts``, one decision for all of them, and merged results."""
