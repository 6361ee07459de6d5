"""All that a number, or the name of a code or a cause, can mean when it is given alone.

Lives here: ``explain_alone``.
"""

from collections.abc import Iterator

from pocketmq.cli.exit_codes import EXIT_CODES_HELP, ExitCode
from pocketmq.common.errors import Cause
from pocketmq.common.known_texts.codes import Code, code_of
from pocketmq.common.known_texts.explanation import Explanation, explain_line, of_code
from pocketmq.common.refusals import REFUSALS
from pocketmq.remoting.codes import RequestCode

_CAUSES = {cause.value: cause for cause in Cause}


def explain_alone(asked: str) -> Iterator[Explanation]:
    """Yield the meanings of a number or a name: response code, cause, request code, exit code. Nothing for a text."""
    word = asked.strip()
    meanings: dict[int, list[Code]] = {}
    for code in code_of(word):
        meanings.setdefault(code.number, []).append(code)
    for codes in meanings.values():
        yield of_code(tuple(codes), " / ".join(f"{code.number} {code.name}" for code in codes))
    cause = _CAUSES.get(word.lower())
    if cause is not None:
        row = REFUSALS[cause]
        yield Explanation(
            key=f"cause {row.name}",
            text=f"cause {row.name}",
            rows=(row,),
            stored=row.stored,
            retried=row.retried or "it depends on the response code beside it",
            scenario=row.scenario,
        )
    if word.isidentifier():
        for form in (f"[{word.upper()}]", f"errors.{word}"):  # a tag of a busy broker; an exception of the SDK
            each = explain_line(form)
            if each is not None and each.rows and word.lower() in each.text.lower():
                each.text = word
                yield each
    for request in RequestCode:
        if word.upper() == request.name or word == str(request.value):
            what = "The number of a request, not of an answer: 'request type N not supported' and logs have it."
            yield Explanation(
                key=f"request {request.value}",
                text=f"request code {request.value} {request.name}",
                codes=(Code(request.value, request.name, what),),
            )
    if meanings and word.isdecimal() and int(word) in list(map(int, ExitCode)):
        name = ExitCode(int(word)).name
        parts = EXIT_CODES_HELP.removeprefix("Exit codes: ").rstrip(".").split("; ")
        said = next(part for part in parts if part.startswith(f"{word} "))
        yield Explanation(
            key=f"exit {word}",
            text=f"exit code {word} of the command pocketmq",
            codes=(Code(int(word), name, f"{said.partition(' ')[2]}."),),
        )
