"""An evaluation on a target. Usage: inspect eval inspect_evaluation.py --model MODEL [-T target=ssh://lab1]"""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import sandbox

SCRIPT = "#!/bin/sh\necho hello, word\n"


@task
def repair(target: str = "local:") -> Task:
    """Let a model repair a script on the target."""
    return Task(
        dataset=[Sample("greet.sh has a typing error. Correct it.", target="hello, world", files={"greet.sh": SCRIPT})],
        solver=[use_tools(bash(timeout=60)), generate()],
        scorer=prints_target(),
        sandbox=("harness", target),
    )


@scorer(metrics=[accuracy()])
def prints_target() -> Scorer:
    """Run the script where the model worked."""

    async def score(state: TaskState, target: Target) -> Score:
        done = await sandbox().exec(["sh", "greet.sh"], timeout=10)
        return Score(value=done.stdout.strip() == target.text, explanation=done.stdout + done.stderr)

    return score
