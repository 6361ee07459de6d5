"""Hypothesis strategies for every header of the table."""

import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.spec import Header

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def _of(annotation: Any) -> st.SearchStrategy[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return st.one_of([_of(arg) for arg in get_args(annotation)])
    if annotation is type(None):
        return st.none()
    for meta in getattr(annotation, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.ge is not None and meta.le is not None:
            return st.integers(int(meta.ge), int(meta.le))
    if annotation is str:
        return TEXT
    if annotation is bool:
        return st.booleans()
    if get_origin(annotation) is list:
        return st.lists(_of(get_args(annotation)[0]), max_size=3)
    if get_origin(annotation) is tuple:
        return st.tuples(*map(_of, get_args(annotation)))
    raise AssertionError(annotation)


def headers_of(kind: type[Header]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    return st.tuples(*(_of(hints[name]) for name in kind.__struct_fields__)).map(lambda values: kind(*values))


KINDS = list(dict.fromkeys(k for spec in PROTOCOL.values() for k in (spec.request, spec.response) if k is not None))
ANY_HEADER: dict[type[Header], st.SearchStrategy[Any]] = {kind: headers_of(kind) for kind in KINDS}
