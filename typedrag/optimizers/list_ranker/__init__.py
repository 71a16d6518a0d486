"""Training RichRAG's list ranker (section 3.4): silver lists, then lists that a generator answers better from."""

from typedrag.core.extras import require

require("accelerate", "torch", "transformers")
