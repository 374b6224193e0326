"""The DRL penalty as it happens: token waits as measured, beside those of one unsplit bucket; and
tokens that are stranded meanwhile."""

from tb_adaptor.penalty.compared import Compared, Figures
from tb_adaptor.penalty.host import Head, Host
from tb_adaptor.penalty.penalty import Heard, Penalty, Waits
from tb_adaptor.penalty.stranded import Stranded

__all__ = ["Compared", "Figures", "Head", "Heard", "Host", "Penalty", "Stranded", "Waits"]
