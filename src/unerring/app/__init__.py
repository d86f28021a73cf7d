"""What an application is, and running it."""

from unerring.app.application import DATA, App, load

__all__ = ["DATA", "App", "load"]
