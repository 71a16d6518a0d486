"""All builders by name. This imports DSPy; their `SETTINGS` alone do not."""

from typedrag.builders.aspects import Aspects
from typedrag.builders.builder import Builder
from typedrag.builders.compound import Compound
from typedrag.builders.fabrications import Fabrications
from typedrag.builders.nuggets import Nuggets
from typedrag.builders.preqrag import PreQRAGQuestions
from typedrag.builders.question_types import QuestionTypes
from typedrag.builders.revelator import RevelatorData, RouterTest
from typedrag.builders.wiki_nfqa import WikiNFQA

_ALL: tuple[type[Builder], ...] = (
    Aspects, Compound, Fabrications, Nuggets, PreQRAGQuestions, QuestionTypes, RevelatorData, RouterTest, WikiNFQA,
)  # fmt: skip
BUILDERS = {builder.name: builder for builder in _ALL}
