#!/usr/bin/env python3
"""A hook: files of hosts in production are written below /srv only."""

import json
import sys

asked = json.load(sys.stdin)
outside = [path for path in asked["paths"] if not path.startswith("/srv/")]
if outside:
    print(json.dumps({"decision": "deny", "reason": f"{outside[0]} is not below /srv"}))
