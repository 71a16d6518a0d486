"""What the list ranker's training minimizes (RichRAG, section 3.4)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def sft_loss(log_probabilities: Tensor) -> Tensor:
    """Of supervised fine-tuning: the mean of what silver lists cost, each the sum over its places (eq. 10).

    Args:
        log_probabilities: Of the silver lists.

    Example:
        Lists with the probabilities 1/2 and 1/8 cost log 2 and 3 log 2:

        >>> from torch import tensor
        >>> round(sft_loss(tensor([0.5, 0.125]).log()).item(), 4)  # 2 log 2
        1.3863
    """
    return -log_probabilities.mean()


def dpo_loss(
    winners: Tensor, losers: Tensor, reference_winners: Tensor, reference_losers: Tensor, beta: float
) -> Tensor:
    """Of direct preference optimization: the mean over pairs of lists (eq. 12).

    Args:
        winners: Log-probabilities of the better lists by the ranker that is trained.
        losers: Of the worse lists.
        reference_winners: Log-probabilities of the better lists by the ranker before the training.
        reference_losers: Of the worse lists.
        beta: How much a change against the reference counts.

    Example:
        An unchanged ranker costs log 2. If the better list has become twice as likely and the worse
        one half as likely, it is log(1 + 4^-beta):

        >>> from torch import tensor
        >>> before = tensor([0.1]).log(), tensor([0.2]).log()
        >>> round(dpo_loss(*before, *before, beta=0.5).item(), 4)
        0.6931
        >>> round(dpo_loss(tensor([0.2]).log(), tensor([0.1]).log(), *before, beta=0.5).item(), 4)  # log(3/2)
        0.4055
    """
    margins = (winners - reference_winners) - (losers - reference_losers)
    return -functional.logsigmoid(beta * margins).mean()
