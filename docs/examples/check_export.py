"""Check a whole exported audit, without harness. Usage: harness audit export | check_export.py"""

import hashlib
import json
import sys

before = None
for line in sys.stdin:
    record = json.loads(line)
    given = record.pop("hash")
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    if hashlib.sha256(text.encode()).hexdigest() != given:
        sys.exit(f"record {record['seq']} was changed")
    if before not in (None, record["prev"]):
        sys.exit(f"record {record['seq']} does not follow the one before it")
    before = given
print("whole, up to", f"{record['seq']}:{before}" if before else "nothing")
