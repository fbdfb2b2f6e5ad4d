"""The words and expressions of a policy that has many: each kind is looked for in one pass over a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from lemonade.catalog.policy.expression import Expression, literal, together
from lemonade.catalog.policy.match import AllOf, AnyOf, Keywords, Node, Not, Regex

#: From so many of a kind on one pass is quicker than a search for each, up to the first that is found.
FEW = 8
#: Instructions of an expression's program, beyond which it is searched for by itself: together, large ones take more
#: time than one after the other.
MAX_PROGRAM = 64

Pass = Callable[[bytes], frozenset[int] | None]


class Lookup:
    """Finds all at once. Answers None where a search for each is to be preferred.

    Args:
        nodes: what the rules match.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        words: dict[bytes, None] = {}
        expressions: dict[Expression, None] = {}
        for node in nodes:
            _collect(node, words, expressions)
        self._words = tuple(words)
        self._expressions = tuple(one for one in expressions if one.size <= MAX_PROGRAM)

    def words(self, folded: bytes) -> frozenset[bytes] | None:
        """Those of the keywords that occur in a text with small ASCII letters."""
        found = self._word_pass(folded) if self._word_pass else None
        return None if found is None else frozenset(self._words[number] for number in found)

    def expressions(self, text: bytes) -> dict[Expression, bool] | None:
        """Of each expression that was looked for, whether it was found; large ones are not among them."""
        found = self._expression_pass(text) if self._expression_pass else None
        return None if found is None else {one: number in found for number, one in enumerate(self._expressions)}

    @cached_property
    def _word_pass(self) -> Pass | None:
        return together([literal(word) for word in self._words]) if len(self._words) >= FEW else None

    @cached_property
    def _expression_pass(self) -> Pass | None:
        return together([one.pattern for one in self._expressions]) if len(self._expressions) >= FEW else None


def _collect(node: Node, words: dict[bytes, None], expressions: dict[Expression, None]) -> None:
    match node:
        case AnyOf(nodes) | AllOf(nodes):
            for each in nodes:
                _collect(each, words, expressions)
        case Not(inner):
            _collect(inner, words, expressions)
        case Keywords(found):
            words.update(dict.fromkeys(found))
        case Regex(search):
            expressions[search] = None
