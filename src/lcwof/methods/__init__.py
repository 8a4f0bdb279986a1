"""One file per system, all behind one interface; importing this room registers them all."""

from lcwof.methods import dfsl, ft, gfsv, icarl, idlvq, ilvq, iw, joint, lcwof, pn, sdc, topic, ucir
from lcwof.methods.base import Base, Fitting, Method, State, Task, get_method, method_names, register_method

__all__ = [
    "Base",
    "Fitting",
    "Method",
    "State",
    "Task",
    "dfsl",
    "ft",
    "get_method",
    "gfsv",
    "icarl",
    "idlvq",
    "ilvq",
    "iw",
    "joint",
    "lcwof",
    "method_names",
    "pn",
    "register_method",
    "sdc",
    "topic",
    "ucir",
]
