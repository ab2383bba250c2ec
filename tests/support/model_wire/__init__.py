"""The wire protocols of providers of models, as their servers speak them: for :mod:`tests.support.model_server`."""
