"""``harness models``: list the configured models and check whether they respond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..completed_names import complete_model
from ..exits import FAILED
from ..options import command, group
from ..output import note, print_json, readable, table
from ..runtime import session_of
from ..streams import Interruption, run_async

if TYPE_CHECKING:
    from ...agent.models import ModelProfile, ModelTable, Price
    from ...agent.models.checking import ModelCheck

__all__ = ["models"]

# -- list


@command("list")
@click.pass_context
def list_models(ctx: click.Context) -> None:
    """List the configured models; '*' marks the default for new conversations. API keys are not read."""
    from ...agent.models import load_models

    session = session_of(ctx)
    found = load_models(session.invocation.choices)
    if session.json:
        print_json({"default": found.default, "models": [_document(profile) for profile in found.profiles]})
        return
    if not found.profiles:
        note(f"no model is configured: {found.setup}")
    table(("NAME", "MODEL", "KEY", "PRICE", "ADDRESS"), [_row(profile, found) for profile in found.profiles])


def _row(profile: ModelProfile, found: ModelTable) -> tuple[str, ...]:
    mark = "*" if profile.name == found.default else ""
    keys = " or ".join(str(source) for source in profile.key_sources)
    return f"{profile.name}{mark}", profile.label, keys, _price(profile.prices), profile.base_url


def _price(price: Price | None) -> str:
    return "" if price is None else f"${price.input}/${price.output}"


def _document(profile: ModelProfile) -> dict[str, object]:
    prices = profile.prices
    return {
        "name": profile.name,
        "provider": profile.provider,
        "model": profile.model,
        "base_url": profile.base_url,
        "key": [str(source) for source in profile.key_sources],
        "context_limit": profile.context_window or None,
        "max_output": profile.max_output_tokens or None,
        "temperature": profile.temperature,
        "top_p": profile.top_p,
        "reasoning": profile.reasoning or None,
        "prices": prices and {"input": float(prices.input), "output": float(prices.output)},
        "timeout": profile.timeout,
        "retries": profile.retries,
    }


# -- check


@command("check")
@click.argument("name", required=False, default="", shell_complete=complete_model)
@click.pass_context
def check(ctx: click.Context, name: str) -> int:
    """Send one short request to a model: NAME, PROVIDER:MODEL or the default. The exit code is 1 if it fails."""
    from ...agent.models import load_models

    session = session_of(ctx)
    profile = load_models(session.invocation.choices).profile(name)

    async def main(interruption: Interruption) -> int:
        from ...agent.models.checking import check_model

        with interruption.reaches():
            result = await check_model(profile)
            print_json(_result(result)) if session.json else _show(result)
            return FAILED if result.failure else 0
        return 0  # cancelled; run_async returns the exit code

    return run_async(main)


def _show(result: ModelCheck) -> None:
    if result.failure is not None:
        note(str(result.failure))
        return
    cost = "unknown" if result.cost is None else f"${result.cost:.6f}"
    click.echo(f"{readable(result.profile.label)} responds: {readable(result.answer)[:60]}")
    click.echo(f"first output after {result.first:.2f} s, complete after {result.seconds:.2f} s")
    click.echo(f"{result.input_tokens} tokens in, {result.output_tokens} out; cost {cost}")
    click.echo(f"context window: {result.context_window or 'unknown; set context_window in its model profile'}")


def _result(result: ModelCheck) -> dict[str, object]:
    failure = result.failure
    document: dict[str, object] = {"name": result.profile.name, "model": result.profile.label, "ok": failure is None}
    if failure is not None:
        why = {"kind": failure.kind, "message": failure.message, "hint": failure.hint}
        return {**document, "failure": {**why, "retryable": failure.retryable}}
    return {
        **document,
        "answer": result.answer,
        "first": round(result.first, 3),
        "seconds": round(result.seconds, 3),
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
        "cost": None if result.cost is None else float(result.cost),
        "context_limit": result.context_window or None,
    }


models = group(
    "models",
    "list",
    (list_models, check),
    "List the configured models and check whether one responds.",
)
