"""RichRAG's generative list-wise ranker (section 3.4): it writes the best list of passages, one after the other.

Needs torch and transformers; import its modules where they are used, so that what does without them
does not wait for them.
"""

from typedrag.extras import require

require("torch", "transformers")
