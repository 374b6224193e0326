"""The DRL penalty as it happens: token waits as measured, beside those of one unsplit bucket."""

from tb_adaptor.penalty.compared import Compared, Figures
from tb_adaptor.penalty.penalty import Heard, Penalty, Waits

__all__ = ["Compared", "Figures", "Heard", "Penalty", "Waits"]
