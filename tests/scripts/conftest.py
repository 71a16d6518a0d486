"""Scripts import one another as they do where they are started."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
