"""One file per system, all behind one interface; importing this room registers them all."""

from lcwof.methods import aan, dfsl, ft, gfsv, icarl, ilvq, iw, joint, lcwof, pn, protogan, rgfsl, sdc, ucir
from lcwof.methods.base import Base, Fitting, Method, State, Task, get_method, method_names, register_method

__all__ = [
    "Base",
    "Fitting",
    "Method",
    "State",
    "Task",
    "aan",
    "dfsl",
    "ft",
    "get_method",
    "gfsv",
    "icarl",
    "ilvq",
    "iw",
    "joint",
    "lcwof",
    "method_names",
    "pn",
    "protogan",
    "register_method",
    "rgfsl",
    "sdc",
    "ucir",
]
