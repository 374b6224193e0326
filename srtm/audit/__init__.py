"""Logs of admissions, and whether they kept to the contract.

    blocks -> folder -> contracts, excess -> judge -> command

A gateway writes the log (`srtm gateway --admission-log`); `srtm audit` reads those of all brokers.
"""
