"""Times ``true`` in the tmux terminal of OpenHands' tools; prints the milliseconds of each call as JSON."""

import json
import sys
import tempfile
import time

from openhands.tools.terminal.definition import TerminalAction
from openhands.tools.terminal.terminal import create_terminal_session


def main(rounds: int) -> list[float]:
    values = []
    with tempfile.TemporaryDirectory() as directory:
        session = create_terminal_session(work_dir=directory, terminal_type="tmux")
        session.initialize()
        for number in range(rounds + 2):
            began = time.perf_counter()
            done = session.execute(TerminalAction(command="true"))
            assert done.metadata.exit_code == 0, done
            if number >= 2:
                values.append((time.perf_counter() - began) * 1e3)
        session.close()
    return values


print(json.dumps(main(int(sys.argv[1]))))
