"""Errors written for the person at the keyboard."""


class LcwofError(Exception):
    """Something the user can put right: the message names what was found, what was expected and what to do.

    The command line prints the message as one sentence and exits with status 2; no traceback.
    """


class OtherSettings(LcwofError):
    """What is there was made with other settings than are asked for."""


class Diverged(LcwofError):
    """A loss or a weight is not a number any more: nothing is learned with these settings; with others it may be."""
