"""The base of all programs, their registry by name, and the questions of conversations."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import InputError, StepFailed, names_hint
from typedrag.core.events import AnswerEnded, Classified, Event, emit, listen
from typedrag.core.question_types import QuestionType, Route, parse_question_type
from typedrag.core.records import NOT_IN_COLLECTION, Answer, Answered, Step, fallbacks, is_grounded, total_usage
from typedrag.core.registry import Registry
from typedrag.files.text_files import has_half_characters
from typedrag.lms.asking import ask, detect_refusals
from typedrag.lms.threads import run_in_thread
from typedrag.lms.trace import Stopwatch, add_step, collect_steps, count_replays, limit_calls, record_fallback
from typedrag.programs.answering import NotAnswered, Retrieving, answer_signature, answer_without_passages
from typedrag.programs.options import Options
from typedrag.retrieval import NoReranker, Reranker, Retriever, open_retriever, reader
from typedrag.signatures.answering import AnswerWithoutPassages, StandaloneQuestion, Turn
from typedrag.text.words import first_words

ASKING = frozenset({"answer_length", "answer_words", "answer_prompt", "max_lm_calls", "retries", "max_question_chars"})
"""Options of programs that ask an LM."""
RETRIEVING = ASKING | {
    "top_k", "rerank_candidates", "score_cutoff", "relevance", "relevance_threshold", "answer_passages",
    "answer_support", "passage_words", "ungrounded",
}  # fmt: skip
"""Options of programs that answer from passages."""


class Program(dspy.Module):
    """Answers questions. Stateless between calls and safe to call from many threads.

    Call it with `program(question=...)` or `await program.acall(question=...)`, within
    `typedrag.use_lm`. It returns a `dspy.Prediction` with the fields of `Answer`, and `grounded`.

    If no passage is found, or the LM says that those found hold no answer, the answer is that the
    collection does not say, and `answered` is `nothing`; with the option `ungrounded` the LM answers from
    its own knowledge. A step that fails has a fallback, named in the field `fallback`: if no answer can
    be read from the LM's replies, the answer is the best passage.

    Args:
        retriever: Finds passages; None for programs that need none.
        reranker: Orders the passages; by default keeps the retriever's order.
        options: See `Options`.

    Raises:
        InputError: If the program needs a retriever and has none, or an option is set that it does not read.
    """

    name: ClassVar[str]
    """The program's name in specs, results and MLflow."""
    retrieves: ClassVar[bool] = True
    """Whether the program needs a retriever."""
    reads_labels: ClassVar[bool] = False
    """Whether the program answers from a dataset's labels, which questions have in evaluations alone."""
    typed: ClassVar[bool] = False
    """Whether the program answers by question type; `respond` then also takes `question_type`, if the asker says it."""
    searches: ClassVar[str] = "bm25"
    """The spec of the default retriever."""
    reads: ClassVar[frozenset[str]] = frozenset(Options.model_fields)
    """The options that the program reads; it refuses any other that the user sets."""

    def __init__(
        self, retriever: Retriever | None = None, reranker: Reranker | None = None, options: Options | None = None
    ) -> None:
        super().__init__()
        if self.retrieves and retriever is None:
            raise InputError(f"program '{self.name}' needs a retriever", "Hand it one, such as BM25Retriever(INDEX)")
        self.retriever = retriever
        self.options = options or Options()
        self.check_options(self.options.model_fields_set)
        self.reranker = reader(reranker or NoReranker(), self.options.passage_words)
        self.answer_without_passages = dspy.Predict(
            answer_signature(AnswerWithoutPassages, self.options, may_be_phrase=True)
        )
        if self.retriever is not None:
            self.build(self.retriever)

    def build(self, retriever: Retriever) -> None:
        """Build the modules of the program; overridden by programs that retrieve."""

    @classmethod
    def check_options(cls, names: Iterable[str]) -> None:
        """Refuse options that the program does not read; the message lists those that it reads."""
        if unread := sorted(set(names) - cls.reads):
            known = [name for name in Options.model_fields if name in cls.reads]
            hint = names_hint("Its options", unread[0], known)
            raise InputError(f"program '{cls.name}' has no option '{unread[0]}'", hint)

    @property
    def max_lm_calls(self) -> int:
        """The most LM calls for one question, retries included."""
        return self.options.max_lm_calls

    def respond(self, question: str) -> dspy.Prediction:
        """Answer a question that has been checked; each program overrides this.

        Returns:
            A prediction with `answer`, and where they apply `passages`, `citations`,
            `question_type`, `route` and `answered`, which is from passages by default if there are any.
            Failures on the way are recorded by `record_fallback`.

        Raises:
            NotAnswered: If the collection does not say; `forward` then answers by `not_answered`.
            StepFailed: If a step fails that the program has no fallback for.
        """
        raise NotImplementedError

    def forward(
        self, question: str, turns: Sequence[Turn] = (), question_type: QuestionType | str | None = None
    ) -> dspy.Prediction:
        """Answer a question.

        Args:
            question: The question.
            turns: The conversation before it; the question is then first rewritten to stand alone.
            question_type: The question's type, if the asker says it; otherwise the program finds it out.

        Raises:
            InputError: If the question is empty or too long, there is no such type, or the program has no types.
            StepFailed: If no reply of the LM can be parsed, and the program does not retrieve.
            CallFailed: If the LM fails at this question, or refuses every call.
            LMUnavailable: If the LM cannot be used.
            RetrievalError: If the index or the reranker cannot be used.
        """
        question, known_type = self._check_input(question, question_type)
        budget = limit_calls(self.max_lm_calls)
        with detect_refusals(), count_replays(), budget, collect_steps() as steps:
            watch = Stopwatch()
            if turns := read_turns(question, turns):
                question = rewrite_standalone(question, turns, self.options.retries)
            try:
                prediction = self.respond(question, **known_type)
            except NotAnswered as failure:
                prediction = self.not_answered(question, failure)
            seconds = watch.seconds
        answered_as = prediction.get("question_type")
        options = self.options.for_type(answered_as) if answered_as else self.options
        known = Answered.PASSAGES if prediction.get("passages") else Answered.KNOWLEDGE
        unset = Answer(question, "", program=self.name, passage_words=options.passage_words, answered=known)
        fields = {
            **{name: getattr(unset, name) for name in Answer.__dataclass_fields__},
            **prediction.toDict(),
            "steps": tuple(steps),
            "fallback": fallbacks(steps),
            "seconds": seconds,
            "usage": total_usage(steps),
        }
        return dspy.Prediction(**fields, grounded=is_grounded(fields["answered"], fields["citations"]))

    async def aforward(
        self, question: str, turns: Sequence[Turn] = (), question_type: QuestionType | str | None = None
    ) -> dspy.Prediction:
        """Answer a question in a thread, without blocking the event loop.

        A process answers at most `threads.AWAITED_AT_ONCE` questions at once, unless `threads.limit_awaited` says
        otherwise. A question whose task is cancelled makes no further LM call.
        """
        return await run_in_thread(partial(type(self).forward, self, question, turns, question_type))

    async def stream(
        self,
        question: str,
        turns: Sequence[Turn] = (),
        question_type: QuestionType | str | None = None,
        *,
        tokens: bool = True,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of answering a question as they happen; the last one is `AnswerEnded`.

        If the listener stops (`aclosing`, a cancelled task), the current LM call ends, and no other is made.

        Args:
            question: To answer.
            turns: See `forward`.
            question_type: See `forward`.
            tokens: True for events of the answer's text while it is written.

        Raises:
            TypedRAGError: As `forward` does, after the events until then.

        Example:
            async for event in program.stream(question="Why does bread rise?"):
                if isinstance(event, AnswerToken):
                    print(event.text, end="")
        """
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event | None]()

        def tell(event: Event | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(events.put_nowait, event)

        with listen(tell, tokens=tokens):
            task = asyncio.ensure_future(self.acall(question=question, turns=turns, question_type=question_type))
        task.add_done_callback(lambda _: tell(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield AnswerEnded(answer=Answer.from_prediction(task.result()))
        finally:
            task.cancel()

    def answer_from_lm(self, question: str) -> dspy.Prediction:
        return answer_without_passages(self.answer_without_passages, question, retries=self.options.retries)

    def not_answered(self, question: str, failure: NotAnswered) -> dspy.Prediction:
        """Answer that the collection does not say; from the LM's own knowledge if the option `ungrounded` is set."""
        if self.options.ungrounded:
            try:
                return self.answer_from_lm(question)
            except StepFailed as unread:
                record_fallback(unread, "the answer is that the collection does not say")
        return dspy.Prediction(answer=NOT_IN_COLLECTION, passages=failure.passages, answered=Answered.NOTHING)

    def _check_input(self, question: str, question_type: QuestionType | str | None) -> tuple[str, dict[str, Any]]:
        """The question, stripped, and the type as an input of `respond`, if one is given."""
        question, longest = question.strip() if isinstance(question, str) else "", self.options.max_question_chars
        if not question:
            raise InputError("the question is empty", "Ask something")
        if has_half_characters(question):
            raise InputError("the question holds half of a surrogate pair, which is no character", "Take it out")
        if len(question) > longest:
            problem = f"the question has {len(question):,} characters; {longest:,} are allowed"
            raise InputError(problem, "Shorten it, or raise the option max_question_chars")
        if not question_type:
            return question, {}
        if not self.typed:
            problem = f"the question has a type, and program '{self.name}' does not answer by type"
            raise InputError(problem, "Leave the type out, or ask typed_rag")
        return question, {"question_type": parse_question_type(question_type)}


class StrategyProgram(Program):
    """Answers every question the same way."""

    strategy_class: ClassVar[type[Retrieving]]

    def build(self, retriever: Retriever) -> None:
        self.strategy = self.strategy_class(retriever, self.reranker, self.options)

    def respond(self, question: str) -> dspy.Prediction:
        return self.strategy(question=question)


class RoutedProgram(Program):
    """Names a question's route, then answers its way; a question whose route cannot be read is a single step."""

    def route(self, question: str) -> Route:
        raise NotImplementedError

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        raise NotImplementedError

    def respond(self, question: str) -> dspy.Prediction:
        try:
            route = self.route(question)
        except StepFailed as failure:
            route = Route.SINGLE_STEP
            record_fallback(failure, f"taken as {route}")
        emit(Classified, route=str(route))
        try:
            answer = self.by_route(question, route)
        except NotAnswered as failure:
            answer = self.not_answered(question, failure)
        return dspy.Prediction(**{**answer.toDict(), "route": str(route)})


_TURNS = 6  # the number of last turns that are read: a message mostly refers to what was said just before
_LONGEST_FOLLOW_UP = 600  # characters; a longer message says what it is about, and would be cut down by rewriting
_WORDS = 120
"""The first words of a turn that are read: enough to tell its topic, and six such turns fit a small LM's prompt."""


def read_turns(message: str, turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns of a conversation that are read for a message which ends it: the last ones, or none if it is long."""
    return tuple(turns[-_TURNS:]) if len(message) <= _LONGEST_FOLLOW_UP else ()


def rewrite_standalone(message: str, turns: Sequence[Turn], retries: int) -> str:
    """The question that a message asks after some turns, oldest first, rewritten to stand alone, since programs do not
    see the turns; the message itself if the reply cannot be parsed."""
    predict = dspy.Predict(StandaloneQuestion)  # belongs to no program: never compiled or saved with one
    conversation = [Turn(speaker=turn.speaker, text=first_words(turn.text, _WORDS)) for turn in turns]
    try:
        reply = ask("stand alone", predict, retries=retries, conversation=conversation, question=message)
    except StepFailed as failure:
        record_fallback(failure, "the last message is taken as it is")
        return message
    question = " ".join(reply.prediction.standalone_question.root.split()) or message
    add_step(Step("stand alone", message, question, seconds=reply.seconds, usage=reply.usage))
    return question


_PROGRAMS: Registry[Program] = Registry("program")
program = _PROGRAMS.add
program_names = _PROGRAMS.names


def program_class(name: str) -> type[Program]:
    """The program class of this name, which may also be spelled with hyphens.

    Raises:
        InputError: If there is none; the message lists all names.
    """
    spelled = name.replace("-", "_")
    # only if needed: looking for names in installed packages takes milliseconds
    return _PROGRAMS.find(spelled if spelled != name and spelled in program_names() else name)


def build_program(
    name: str, retriever: Retriever | None = None, reranker: Reranker | None = None, options: Options | None = None
) -> Program:
    """The program of this name; see `Program`.

    Args:
        name: The name of the program.
        retriever: By default what the program searches with, over `TYPEDRAG_INDEX` or else a sample.
        reranker: See `Program`.
        options: See `Program`.

    Raises:
        InputError: If no program has that name, or an option is set that it does not read.
        Unavailable: If the default index cannot be used.
    """
    cls = program_class(name)
    return cls(retriever or (open_retriever(cls.searches) if cls.retrieves else None), reranker, options)
