"""An application as a package of several modules, which only the driver's host has."""
