"""SQL92 filters on message properties, as RocketMQ's consumers write them: ``price > 5 AND region IN ('a', 'b')``.

Lives here: the grammar (read by lark), the compiled filter, the error that says where an expression does not parse.

    comparison   name > 5, >=, <, <=, name BETWEEN 1 AND 9      numbers
    equality     name = 'text', name <> 5, name = TRUE          text, numbers, booleans
    sets, text   name IN ('a', 'b'), name CONTAINS 'x', STARTSWITH, ENDSWITH   (the last three as RocketMQ 5)
    null         name IS NULL, name IS NOT NULL
    logic        AND, OR, NOT, parentheses; NOT IN, NOT BETWEEN, NOT CONTAINS ...

Properties are text. A property that is compared with a number counts as a number if it reads as one. Logic is SQL's,
with three values: what compares with a missing property, or text with a number, is unknown; only true matches.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pocketmq.common.errors import Cause, PocketMQError

if TYPE_CHECKING:
    from lark import Lark, Token

SQL92_TYPE: Final = "SQL92"
TAG_TYPE: Final = "TAG"
"""Expression types (RocketMQ ExpressionType)."""
EXPRESSION_LENGTH_MAX: Final = 16_384
SHORT_MAX: Final = 256
"""Expressions up to this length are kept in greater number."""
DEPTH_MAX: Final = 64
"""Parentheses and NOTs inside each other."""
COMPARISONS_MAX: Final = 512
"""Comparisons of one expression: each of them takes time for every message. A list of values is one comparison."""
TERMS_MAX: Final = 4_096
"""Comparisons and listed values of one expression."""

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]
"""Returns True, False, or None: unknown."""

_GRAMMAR: Final = r"""
    start: either
    ?either: both (_OR both)*
    ?both: inverse (_AND inverse)*
    ?inverse: _NOT inverse -> negation | predicate
    ?predicate: NAME                                     -> bare
              | BOOLEAN                                  -> constant
              | "(" either ")"                          -> group
              | _scalar EQUAL _scalar                    -> equality
              | _numeric ORDER _numeric                  -> order
              | NAME _BETWEEN _numeric _AND _numeric       -> between
              | NAME _NOT _BETWEEN _numeric _AND _numeric  -> not_between
              | NAME _IN "(" STRING ("," STRING)* ")"      -> is_in
              | NAME _NOT _IN "(" STRING ("," STRING)* ")" -> is_not_in
              | NAME TEXT_TEST STRING                    -> text_test
              | NAME _NOT TEXT_TEST STRING               -> not_text_test
              | NAME _IS _NULL                           -> is_null
              | NAME _IS _NOT _NULL                      -> is_not_null
    _scalar: NAME | STRING | BOOLEAN | NUMBER
    _numeric: NAME | NUMBER

    EQUAL.2: "=" | "<>"
    ORDER: ">=" | "<=" | ">" | "<"
    STRING: /'(?:[^']|'')*'/
    NUMBER: /[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[lL]?(?![.\d])/
    BOOLEAN.2: /(?:TRUE|FALSE)(?![A-Za-z0-9_$])/i
    TEXT_TEST.2: /(?:CONTAINS|STARTSWITH|ENDSWITH)(?![A-Za-z0-9_$])/i
    _AND.2: /AND(?![A-Za-z0-9_$])/i
    _OR.2: /OR(?![A-Za-z0-9_$])/i
    _NOT.2: /NOT(?![A-Za-z0-9_$])/i
    _IN.2: /IN(?![A-Za-z0-9_$])/i
    _IS.2: /IS(?![A-Za-z0-9_$])/i
    _BETWEEN.2: /BETWEEN(?![A-Za-z0-9_$])/i
    _NULL.2: /NULL(?![A-Za-z0-9_$])/i
    NAME: /(?!(?:AND|OR|NOT|IN|IS|BETWEEN|NULL|TRUE|FALSE)(?![A-Za-z0-9_$]))[A-Za-z_$][A-Za-z0-9_$]*/i
    %ignore /\s+/
"""

_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_WORDS: Final = {
    "NAME": "a property",
    "STRING": "'text'",
    "NUMBER": "a number",
    "BOOLEAN": "TRUE or FALSE",
    "EQUAL": "= or <>",
    "ORDER": "> >= < <=",
    "TEXT_TEST": "CONTAINS, STARTSWITH, ENDSWITH",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "$END": "the end",
}


class FilterIllegal(PocketMQError):
    """A subscription's expression cannot be parsed."""

    code = 23  # SUBSCRIPTION_PARSE_FAILED
    default_cause = Cause.BAD_REQUEST


class _Node(NamedTuple):
    evaluate: Evaluate
    depth: int
    terms: int
    comparisons: int


class SqlFilter:
    """A compiled expression. ``matches`` does not raise, whatever the properties are; safe in any thread.
    ``comparisons``: how many one message takes at most."""

    __slots__ = ("_evaluate", "comparisons", "expression")

    def __init__(self, expression: str, evaluate: Evaluate, comparisons: int) -> None:
        self.expression = expression
        self._evaluate = evaluate
        self.comparisons = comparisons

    def matches(self, properties: Properties) -> bool:
        """Return whether the expression is true for a message with these properties."""
        return self._evaluate(properties) is True


def compile_filter(expression: str) -> SqlFilter:
    """Return the filter; raise ``FilterIllegal`` with the position of the fault.

    The last thousand short ones and 16 long ones are kept: each pull repeats its expression. A compiled
    comparison takes about 1 KiB.
    """
    if not isinstance(expression, str):
        raise FilterIllegal("filter refused", why=f"{type(expression).__name__} is no str", hint='write "price > 5"')
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise FilterIllegal("filter refused", why=f"{len(expression)} characters, limit {EXPRESSION_LENGTH_MAX}")
    if not expression.strip():
        raise FilterIllegal("filter refused", why="the expression is empty", hint="write a > 5, or subscribe by tags")
    return _short(expression) if len(expression) <= SHORT_MAX else _long(expression)


@functools.lru_cache(maxsize=1024)
def _short(expression: str) -> SqlFilter:
    return _compiled(expression)


@functools.lru_cache(maxsize=16)
def _long(expression: str) -> SqlFilter:
    return _compiled(expression)


def _compiled(expression: str) -> SqlFilter:
    from lark.exceptions import UnexpectedInput

    try:
        node: Any = _parser().parse(expression)
    except UnexpectedInput as error:
        raise _illegal(expression, error) from None
    return SqlFilter(expression, node.evaluate, node.comparisons)


@functools.cache
def _parser() -> "Lark":
    from lark import Lark

    rules: Any = _Rules()
    return Lark(_GRAMMAR, parser="lalr", lexer="contextual", transformer=rules)


class _Rules:
    """The calls of lark for each rule, with a list of children: the methods of ``_Builder``, which take them one by
    one."""

    def __init__(self) -> None:
        self._builder = _Builder()

    def __getattr__(self, name: str) -> Callable[[list[Any]], Any]:
        build = getattr(self._builder, name)
        return lambda children: build(*children)


def _illegal(expression: str, error: Any) -> FilterIllegal:
    """Return the error: the position, the text found, and the texts allowed there."""
    at = min(max(int(getattr(error, "pos_in_stream", 0) or 0), 0), len(expression))
    if str(getattr(getattr(error, "token", None), "type", "")) == "$END":
        at = len(expression)
    found = expression[at : at + 20]
    names = getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    expected = ", ".join(sorted({_WORDS.get(str(name), str(name).lstrip("_")) for name in names}))
    line = expression.count("\n", 0, at) + 1
    column = at - (expression.rfind("\n", 0, at) + 1) + 1
    where = f"column {column}" if "\n" not in expression else f"line {line}, column {column}"
    what = repr(found) if found else "the end"
    return FilterIllegal(
        "filter refused",
        why=f"{where}: {what} in {expression[:200]!r}",
        hint=f"expected: {expected}" if expected else "",
    )


# ---- meaning -------------------------------------------------------------------------------------------------------


class _Builder:
    """Compiles each rule of the grammar. Methods are named like the rules."""

    def start(self, node: _Node) -> _Node:
        return node

    def group(self, node: _Node) -> _Node:
        return _deeper(node.evaluate, node)

    def either(self, *nodes: _Node) -> _Node:
        parts = [node.evaluate for node in nodes]

        def evaluate(properties: Properties) -> Any:
            unknown = False
            for part in parts:
                value = part(properties)
                if value is True:
                    return True
                unknown |= value is None
            return None if unknown else False

        return _joined(evaluate, nodes)

    def both(self, *nodes: _Node) -> _Node:
        if len(nodes) == 1:
            return nodes[0]
        parts = [node.evaluate for node in nodes]

        def evaluate(properties: Properties) -> Any:
            unknown = False
            for part in parts:
                value = part(properties)
                if value is False:
                    return False
                unknown |= value is None
            return None if unknown else True

        return _joined(evaluate, nodes)

    def negation(self, node: _Node) -> _Node:
        return _deeper(_negated(node.evaluate), node)

    def bare(self, name: "Token") -> _Node:
        return _leaf(_equality(_property(str(name)), _constant(True)))

    def constant(self, token: "Token") -> _Node:
        return _leaf(_constant(token.upper() == "TRUE"))

    def equality(self, left: "Token", operator: "Token", right: "Token") -> _Node:
        evaluate = _equality(_operand(left), _operand(right))
        return _leaf(evaluate if operator == "=" else _negated(evaluate))

    def order(self, left: "Token", operator: "Token", right: "Token") -> _Node:
        return _leaf(_order(_operand(left), str(operator), _operand(right)))

    def between(self, name: "Token", low: "Token", high: "Token") -> _Node:
        at_least = _order(_property(str(name)), ">=", _operand(low))
        at_most = _order(_property(str(name)), "<=", _operand(high))
        return self.both(_leaf(at_least), _leaf(at_most))

    def not_between(self, name: "Token", low: "Token", high: "Token") -> _Node:
        node = self.between(name, low, high)
        return node._replace(evaluate=_negated(node.evaluate))

    def is_in(self, name: "Token", *values: "Token") -> _Node:
        wanted, key = frozenset(map(_text, values)), str(name)

        def evaluate(properties: Properties) -> Any:
            value = properties.get(key)
            return None if value is None else value in wanted

        return _leaf(evaluate, len(values))

    def is_not_in(self, name: "Token", *values: "Token") -> _Node:
        node = self.is_in(name, *values)
        return node._replace(evaluate=_negated(node.evaluate))

    def text_test(self, name: "Token", test: "Token", value: "Token") -> _Node:
        key, text, kind = str(name), _text(value), test.upper()

        def evaluate(properties: Properties) -> Any:
            found = properties.get(key)
            if found is None:
                return None
            if kind == "CONTAINS":
                return text in found
            return found.startswith(text) if kind == "STARTSWITH" else found.endswith(text)

        return _leaf(evaluate)

    def not_text_test(self, name: "Token", test: "Token", value: "Token") -> _Node:
        node = self.text_test(name, test, value)
        return node._replace(evaluate=_negated(node.evaluate))

    def is_null(self, name: "Token") -> _Node:
        key = str(name)
        return _leaf(lambda properties: key not in properties)

    def is_not_null(self, name: "Token") -> _Node:
        key = str(name)
        return _leaf(lambda properties: key in properties)


def _leaf(evaluate: Evaluate, terms: int = 1) -> _Node:
    return _checked(_Node(evaluate, 1, terms, 1))


def _joined(evaluate: Evaluate, nodes: tuple[_Node, ...]) -> _Node:
    depth = max(node.depth for node in nodes)
    terms, comparisons = (
        sum(column) for column in zip(*((node.terms, node.comparisons) for node in nodes), strict=True)
    )
    return _checked(_Node(evaluate, depth, terms, comparisons))


def _deeper(evaluate: Evaluate, node: _Node) -> _Node:
    return _checked(node._replace(evaluate=evaluate, depth=node.depth + 1))


def _checked(node: _Node) -> _Node:
    if node.depth > DEPTH_MAX:
        raise FilterIllegal("filter refused", why=f"more than {DEPTH_MAX} parentheses or NOTs inside each other")
    if node.comparisons > COMPARISONS_MAX:
        raise FilterIllegal(
            "filter refused",
            why=f"more than {COMPARISONS_MAX} comparisons",
            hint="name IN ('a', 'b') is one comparison",
        )
    if node.terms > TERMS_MAX:
        raise FilterIllegal("filter refused", why=f"more than {TERMS_MAX} comparisons and values")
    return node


def _operand(token: "Token") -> Evaluate:
    if token.type == "NAME":
        return _property(str(token))
    if token.type == "STRING":
        return _constant(_text(token))
    if token.type == "BOOLEAN":
        return _constant(token.upper() == "TRUE")
    number = _number(token.rstrip("lL"))
    if number is None:
        raise FilterIllegal("filter refused", why=f"column {token.column}: {str(token)[:40]!r} is too long a number")
    return _constant(number)


def _property(name: str) -> Evaluate:
    return lambda properties: properties.get(name)


def _constant(value: Any) -> Evaluate:
    return lambda properties: value


def _text(token: "Token") -> str:
    return token[1:-1].replace("''", "'")


def _negated(evaluate: Evaluate) -> Evaluate:
    def inverse(properties: Properties) -> Any:
        value = evaluate(properties)
        return None if value is None else not value

    return inverse


def _number(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else None


def _boolean(text: str) -> bool | None:
    lower = text.lower()
    return True if lower == "true" else False if lower == "false" else None


def _alike(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Return both as values of one kind, text turned into what the other one is; None: they cannot be compared."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and not isinstance(right, str):
        left = _boolean(left) if isinstance(right, bool) else _number(left)
    elif isinstance(right, str) and not isinstance(left, str):
        right = _boolean(right) if isinstance(left, bool) else _number(right)
    if left is None or right is None or isinstance(left, bool) is not isinstance(right, bool):
        return None
    return left, right


def _equality(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Any:
        pair = _alike(left(properties), right(properties))
        return None if pair is None else pair[0] == pair[1]

    return evaluate


def _order(left: Evaluate, operator: str, right: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Any:
        pair = _alike(left(properties), right(properties))
        if pair is None:
            return None
        one, two = pair
        if isinstance(one, str):  # two properties: as numbers, if both are
            one, two = _number(one), _number(two)
            if one is None or two is None:
                return None
        if operator == ">":
            return one > two
        if operator == ">=":
            return one >= two
        return one < two if operator == "<" else one <= two

    return evaluate
