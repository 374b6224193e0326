"""`srtm broker capacity`: what a broker holds within an SLO, measured by rounds of load."""
