"""The factory of the correlation paper (section II): facilities in a hierarchy, situations, what is done about them.

`python -m factory` shows a day of it; `python -m factory.services FOLDER` starts the services that its processes call.
"""
