"""Models: profiles from the settings, keys, opening, failures and costs.

Importing this loads no provider's library; :func:`open_model` does, in a thread.
"""

from .failures import FailureKind, ModelFailure, backoff, model_failure, unfinished
from .keys import CommandKey, EnvironmentKey, FileKey, KeyringKey, KeySource, hide_keys, known_keys, read_key
from .model import ModelProfile, OpenModel, Price, Reasoning, context_limit_of, cost_of
from .model_opening import open_model
from .profiles import ModelTable, load_models

__all__ = [
    "CommandKey",
    "EnvironmentKey",
    "FailureKind",
    "FileKey",
    "KeySource",
    "KeyringKey",
    "ModelFailure",
    "ModelProfile",
    "ModelTable",
    "OpenModel",
    "Price",
    "Reasoning",
    "backoff",
    "context_limit_of",
    "cost_of",
    "hide_keys",
    "known_keys",
    "load_models",
    "model_failure",
    "open_model",
    "read_key",
    "unfinished",
]
