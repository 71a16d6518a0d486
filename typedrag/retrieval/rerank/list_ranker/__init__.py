"""RichRAG's generative list-wise ranker (section 3.4): it writes the best list of passages, one by one.

Needs torch and transformers: import its modules only where they are used, so that other code
does not wait for these.
"""

from typedrag.core.extras import require

require("torch", "transformers")
