"""`srtm doctor`: is this host fit for a broker, before one is started?"""

from srtm.doctor.findings import Finding, Verdict
from srtm.doctor.look import examine

__all__ = ["Finding", "Verdict", "examine"]
