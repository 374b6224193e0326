"""Certificates for brokers and testbeds: an authority in a folder issues them, and any is shown.

What programs do with certificates is in `srtm/host/certificates.py`.
"""
