"""Scenarios, one room a module; each registers itself with `@scenario(NAME)` when it is imported."""
